//! The steps of the story. Each asks the daemon as any program would, and insists
//! on the answer.

use std::time::Instant;

use serde_json::{Value, json};

use super::{
    super::{access, args::WaitOptions, client::Client, exit::Failure, install, mutate, refresh, uninstall},
    editions::{FIRST, SECOND, artifact},
    site::{FEED_ENTRIES, Site},
    stage::{Stage, duration},
};
use crate::{
    api::dto,
    domain::{digest::Sha256Digest, error::ErrorCode},
};

const WAIT: WaitOptions = WaitOptions { no_wait: false, timeout: 120 };

/// What the steps share.
pub(super) struct Story<'a> {
    pub(super) client: Client,
    pub(super) stage: &'a mut Stage,
    pub(super) site: &'a Site,
}

impl Story<'_> {
    pub(super) async fn refresh(&mut self) -> Result<(), Failure> {
        self.stage.step("Read the catalog");
        let snapshot = self.read_catalog().await?;
        expect(snapshot.connectors.len() == 2, "the catalog lists two connectors")?;
        for connector in &snapshot.connectors {
            self.stage.detail(format!("{} {}", connector.key, connector.release.version));
        }
        Ok(())
    }

    pub(super) async fn permissions(&mut self) -> Result<(), Failure> {
        self.stage.step("Look at what they ask for, before anything is downloaded");
        for key in ["echo", "feeds"] {
            let connector = self.client.connector(key).await?;
            expect(connector.installation.state == "not_installed", "nothing is installed yet")?;
            self.stage.detail(format!("{key} {}", connector.release.version));
            for line in access::lines(&connector) {
                self.stage.detail(format!("  {line}"));
            }
        }
        Ok(())
    }

    pub(super) async fn install(&mut self, key: &str) -> Result<(), Failure> {
        self.stage.step(&format!("Install {key}"));
        let started = Instant::now();
        let operation = self.install_and_wait(key).await?;
        let verified = operation.target.and_then(|target| target.artifact_sha256).unwrap_or_default();
        let served = artifact(FIRST, key).map(|bytes| Sha256Digest::of(bytes).to_string());
        expect(Some(&verified) == served.as_ref(), "the verified digest is that of the served bytes")?;
        self.stage.detail(format!("verified sha256:{verified}"));
        let connector = self.client.connector(key).await?;
        let runs = connector.runtime.as_ref().is_some_and(|runtime| runtime.state == "started");
        expect(connector.installation.state == "installed" && runs, "it is installed and runs")?;
        self.stage.timed("fetched, verified, unpacked, compiled, linked and asked what it can do", started);
        Ok(())
    }

    pub(super) async fn call_echo(&mut self) -> Result<(), Failure> {
        self.stage.step("Call echo.echo, in an instance made for this call alone");
        let started = Instant::now();
        let answer = self.call("echo.echo", json!({ "message": "Hello, gate." })).await?;
        expect(answer["structuredContent"] == json!({ "message": "Hello, gate." }), "echo answers in kind")?;
        self.stage.timed("\"Hello, gate.\" came back", started);
        let refused = self.call("echo.echo", json!({ "message": 7 })).await;
        self.refusal(refused, ErrorCode::CapabilityInputInvalid, "input outside the schema")
    }

    pub(super) async fn read_feed(&mut self) -> Result<(), Failure> {
        self.stage.step("Call feeds.read, through the egress policy");
        let started = Instant::now();
        let answer = self.call("feeds.read", json!({ "url": self.site.feed_url() })).await?;
        let entries =
            answer["structuredContent"]["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
        expect(entries.len() == FEED_ENTRIES, "all entries of the feed are there")?;
        for entry in entries {
            self.stage.detail(format!("- {}", entry["title"].as_str().unwrap_or_default()));
        }
        self.stage.timed(format!("{} entries", entries.len()), started);
        let elsewhere = format!("http://{}/atom.xml", self.site.address());
        let refused = self.call("feeds.read", json!({ "url": elsewhere })).await;
        match refused {
            Err(failure) => {
                self.stage.detail(format!("a host it may not reach is refused: {}", coded(&failure)));
                Ok(())
            }
            Ok(_) => Err(Failure::unexpected("feeds reached a host that is not on its list")),
        }
    }

    pub(super) async fn refuse_tampered_update(&mut self) -> Result<(), Failure> {
        self.stage.step("Offer an update whose bundle was tampered with: one bit of it is flipped");
        self.site.put(SECOND, Some("feeds"));
        self.read_catalog().await?;
        let refused = self.install_and_wait("feeds").await.map(|_| Value::Null);
        self.refusal(refused, ErrorCode::ArtifactDigestMismatch, "the update")?;
        let connector = self.client.connector("feeds").await?;
        let kept = connector.installation.installed_version.as_deref() == Some("1.0.0")
            && connector.installation.state == "installed";
        expect(kept, "1.0.0 is still installed")?;
        let answer = self.call("feeds.read", json!({ "url": self.site.feed_url() })).await?;
        expect(answer["version"] == "1.0.0", "1.0.0 still answers")?;
        self.stage.detail("feeds 1.0.0 still answers");
        Ok(())
    }

    pub(super) async fn update_under_a_call(&mut self) -> Result<(), Failure> {
        self.stage.step("Update feeds for real, while a call of the old version is in flight");
        self.site.put(SECOND, None);
        self.read_catalog().await?;
        let old = async {
            let body = dto::CallBody { input: json!({ "url": self.site.slow_url() }), deadline_ms: None };
            let answer = self.client.call("feeds.read", &body).await;
            (answer, Instant::now())
        };
        let update = async {
            self.site.slow_asked().await;
            self.stage.detail("feeds.read of 1.0.0 waits for a slow site");
            let operation = self.install_and_wait("feeds").await;
            (operation, Instant::now())
        };
        let ((answer, ended), (operation, updated)) = tokio::join!(old, update);
        operation?;
        self.refusal(answer, ErrorCode::CapabilityFenced, "the old call")?;
        self.stage.detail(match updated.checked_duration_since(ended) {
            Some(before) => format!("it ended {} before the update was reported done", duration(before)),
            None => "it ended as the update was reported done".to_owned(),
        });
        let started = Instant::now();
        let search = json!({ "url": self.site.feed_url(), "query": "fence" });
        let answer = self.call("feeds.search", search).await?;
        expect(answer["version"] == "1.1.0", "1.1.0 answers")?;
        let found = answer["structuredContent"]["entries"].as_array().map_or(0, Vec::len);
        expect(found == 1, "one entry is about fences")?;
        let generation = &answer["generation"]["generation"];
        self.stage.timed(
            format!(
                "feeds.search, new in 1.1.0, answers as generation {generation}: {found} entry about fences"
            ),
            started,
        );
        Ok(())
    }

    pub(super) async fn uninstall(&mut self) -> Result<(), Failure> {
        self.stage.step("Uninstall");
        for key in ["feeds", "echo"] {
            let started = Instant::now();
            let accepted = uninstall::accept(&self.client, key).await?;
            mutate::follow(&self.client, self.stage.output(), accepted.operation, WAIT).await?;
            self.stage.timed(key, started);
        }
        let capabilities = self.client.get(&["v1", "capabilities"]).await?;
        expect(capabilities["capabilities"] == json!([]), "nothing can be called any more")?;
        let refused = self.call("echo.echo", json!({ "message": "still there?" })).await;
        self.refusal(refused, ErrorCode::CapabilityNotFound, "echo.echo")
    }

    async fn read_catalog(&self) -> Result<dto::Snapshot, Failure> {
        let started = Instant::now();
        let accepted = refresh::accept(&self.client).await?;
        mutate::follow(&self.client, self.stage.output(), accepted.operation, WAIT).await?;
        let snapshot = self.client.snapshot().await?;
        self.stage.timed("catalog read", started);
        Ok(snapshot)
    }

    async fn install_and_wait(&self, key: &str) -> Result<dto::Operation, Failure> {
        let offered = self.client.connector(key).await?;
        let accepted = install::accept(&self.client, &offered).await?;
        mutate::follow(&self.client, self.stage.output(), accepted.operation, WAIT).await
    }

    async fn call(&self, id: &str, input: Value) -> Result<Value, Failure> {
        self.client.call(id, &dto::CallBody { input, deadline_ms: None }).await
    }

    /// Insists that something was refused with `code`.
    fn refusal(&self, outcome: Result<Value, Failure>, code: ErrorCode, what: &str) -> Result<(), Failure> {
        match outcome {
            Err(failure) if failure.is(code) => {
                self.stage.detail(format!("{what} is refused: {}", coded(&failure)));
                Ok(())
            }
            Err(failure) => Err(Failure::unexpected(format!("expected {code}, got: {}", coded(&failure)))),
            Ok(answer) => Err(Failure::unexpected(format!("expected {code}, got the answer {answer}"))),
        }
    }
}

fn coded(failure: &Failure) -> String {
    format!("{} [{}]", failure.message, failure.code.as_deref().unwrap_or("no code"))
}

fn expect(holds: bool, what: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::unexpected(format!("this does not hold: {what}"))) }
}
