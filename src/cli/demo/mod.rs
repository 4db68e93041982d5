//! `portcullis demo`: the whole story on a temporary directory, through the
//! public API of a real daemon. Any answer that is not the one expected ends it
//! with an error.

mod child;
mod editions;
mod site;
mod stage;
mod story;

use std::{path::Path, time::Duration};

use tokio::signal::unix::{SignalKind, signal};

use super::{args::DemoOptions, exit::Failure, output::Output};

use child::Child;
use site::Site;
use stage::Stage;
use story::Story;

/// How long the whole story may take; it takes seconds.
const LIMIT: Duration = Duration::from_secs(300);

pub(super) async fn run(options: DemoOptions, output: Output) -> Result<(), Failure> {
    if output.is_json() {
        return Err(Failure::usage("the demo speaks to people; leave --json out"));
    }
    let folder = tempfile::Builder::new()
        .prefix("portcullis-demo-")
        .tempdir()
        .map_err(|cause| Failure::unexpected(format!("no temporary directory can be made: {cause}")))?;
    let mut stage = Stage::new(output);
    output.line("Everything below goes through the public API of a real daemon, on a directory of its own.");
    let site = Site::open().await?;
    let played = play(options, output, &mut stage, &site, folder.path()).await;
    if let Err(failure) = &played
        && failure.exit != super::Exit::Ok
    {
        let log = child::last_lines(folder.path());
        if !log.is_empty() {
            output.note(format!("the daemon's last words:\n{log}"));
        }
    }
    played
}

async fn play(
    options: DemoOptions,
    output: Output,
    stage: &mut Stage,
    site: &Site,
    folder: &Path,
) -> Result<(), Failure> {
    let mut stop = Stop::listen()?;
    stage.step("Start a daemon, with nothing but a directory");
    let mut child = Child::start(folder, site)?;
    let told = tokio::select! {
        told = tokio::time::timeout(LIMIT, tell(options, stage, site, &mut child)) => told
            .unwrap_or_else(|_| Err(Failure::unexpected("the demo took too long"))),
        () = stop.asked() => Err(Failure::unexpected("stopped")),
    };
    if told.is_ok() && options.keep {
        keep(output, site, &child);
        tokio::select! {
            () = stop.asked() => {}
            () = child.ended() => return Err(Failure::unexpected("the daemon ended by itself")),
        }
    }
    let stopped = child.stop().await;
    told.and(stopped)?;
    if !options.keep {
        next(output);
    }
    Ok(())
}

async fn tell(
    options: DemoOptions,
    stage: &mut Stage,
    site: &Site,
    child: &mut Child,
) -> Result<(), Failure> {
    let client = child.client().await?;
    stage.detail(format!("listens on {}", client.endpoint()));
    stage.detail(format!("keeps its database, its token and all else in {}", child.data_dir().display()));
    let mut story = Story { client, stage, site };
    story.refresh().await?;
    story.permissions().await?;
    story.install("echo").await?;
    story.install("feeds").await?;
    story.call_echo().await?;
    story.read_feed().await?;
    story.refuse_tampered_update().await?;
    story.update_under_a_call().await?;
    if options.keep {
        return Ok(());
    }
    story.uninstall().await
}

fn keep(output: Output, site: &Site, child: &Child) {
    let program =
        std::env::current_exe().map_or_else(|_| "portcullis".into(), |path| path.display().to_string());
    let portcullis = format!("{program} --data-dir {}", child.data_dir().display());
    output.line("");
    output.line("The daemon stays up until Ctrl-C. In another terminal:");
    output.line(format!("  {portcullis} list"));
    output.line(format!("  {portcullis} routes"));
    output.line(format!("  {portcullis} call echo.echo --input message=hello"));
    output.line(format!(
        "  {portcullis} call feeds.search --input url={} --input query=fence",
        site.feed_url()
    ));
}

fn next(output: Output) {
    output.line("");
    output.line("Try next:");
    output.line("  portcullis demo --keep                          the same, left up to play with");
    output.line("  portcullis serve --catalog fixtures/catalog/v2  a daemon of your own; then, elsewhere:");
    output.line("  portcullis list                                 what there is");
    output.line("  portcullis install feeds                        asks for your consent first");
    output.line("  portcullis connector --help                     make a connector yourself");
}

/// SIGINT and SIGTERM: the child must not outlive the demo.
struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|cause| Failure::unexpected(format!("signals are not delivered: {cause}")))
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
