//! Several processes on one database: one winner a claim, no revision lost.

use std::{process::Stdio, sync::Arc, time::Duration};

use portcullis::{
    domain::{
        error::{Error, ErrorCode},
        id::{NodeId, OperationId, WorkerId},
        lease::LeaseToken,
        revision::Revision,
    },
    ports::Store,
    store::{SqlStore, StoreOptions, sqlite_url},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    time::timeout,
};

use super::{operation, postgres::Schema};

const URL: &str = "PORTCULLIS_TEST_RACE";
const PROCESSES: u64 = 4;
const ROUNDS: u64 = 60;
/// A round takes milliseconds; this is for a machine that is very busy.
const PATIENCE: Duration = Duration::from_secs(60);

async fn open(url: &str) -> SqlStore {
    let node_id = NodeId::parse("node").expect("a node id");
    SqlStore::open(StoreOptions { url: url.to_owned(), node_id, lease_clock: None })
        .await
        .expect("a database")
}

fn id(round: u64) -> OperationId {
    OperationId::parse(format!("op-{round}")).expect("an id")
}

async fn advance(store: &dyn Store) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    tx.advance_revision();
    tx.commit().await
}

/// What [`race`] starts as a process of its own: answers every line on its input, a
/// round, with the token of its claim on standard error, and ends with its input.
#[tokio::test]
#[ignore = "runs within the others of this file only"]
async fn a_racing_process() {
    let url = std::env::var(URL).expect("this is started with a database");
    let store = open(&url).await;
    let worker = WorkerId::parse(format!("worker-{}", std::process::id())).expect("a worker id");
    eprintln!("ready");
    let mut rounds = BufReader::new(tokio::io::stdin()).lines();
    while let Some(round) = rounds.next_line().await.expect("input") {
        let id = id(round.parse().expect("a round"));
        let claimed = store.claim_operation(&id, &worker, Duration::from_secs(3_600)).await;
        while let Err(error) = advance(&store).await {
            assert_eq!(error.code, ErrorCode::SerializationConflict, "{error:?}");
        }
        match claimed.expect("an answer") {
            Some(operation) => eprintln!("won {}", operation.lease_token.0),
            None => eprintln!("lost"),
        }
    }
}

struct Racer {
    process: Child,
    says: Lines<BufReader<ChildStderr>>,
}

impl Racer {
    fn start(url: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "--nocapture", "store::race::a_racing_process"])
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a process");
        let says = BufReader::new(process.stderr.take().expect("its words")).lines();
        Self { process, says }
    }

    async fn next(&mut self) -> String {
        let line = timeout(PATIENCE, self.says.next_line()).await.expect("it answers in time");
        line.expect("it can be read").expect("it has not ended")
    }

    async fn tell(&mut self, round: u64) {
        let stdin = self.process.stdin.as_mut().expect("its input");
        stdin.write_all(format!("{round}\n").as_bytes()).await.expect("it listens");
    }

    async fn end(mut self) {
        drop(self.process.stdin.take());
        let ended = timeout(PATIENCE, self.process.wait()).await.expect("it ends in time");
        assert!(ended.expect("it has ended").success());
    }
}

async fn race(url: &str) {
    let store = Arc::new(open(url).await);
    let mut tx = store.begin().await.expect("a transaction");
    for round in 0..ROUNDS {
        tx.save_operation(&operation(id(round), &format!("c{round}"))).await.expect("a step");
    }
    tx.commit().await.expect("a commit");

    let mut racers: Vec<Racer> = (0..PROCESSES).map(|_| Racer::start(url)).collect();
    for racer in &mut racers {
        assert_eq!(racer.next().await, "ready");
    }
    for round in 0..ROUNDS {
        for racer in &mut racers {
            racer.tell(round).await;
        }
        let mut answers = Vec::new();
        for racer in &mut racers {
            answers.push(racer.next().await);
        }
        answers.sort();
        assert_eq!(answers, ["lost", "lost", "lost", "won 1"], "round {round}");
        let stored = store.operation(&id(round)).await.expect("an answer").expect("it is stored");
        assert_eq!(stored.lease_token, LeaseToken(1));
    }
    for racer in racers {
        racer.end().await;
    }
    let revision = store.snapshot().await.expect("a snapshot").revision;
    assert_eq!(revision, Revision(PROCESSES * ROUNDS), "no transaction was lost");
    store.close().await;
}

#[tokio::test]
async fn processes_that_race_on_a_file_have_one_winner() {
    let folder = tempfile::tempdir().expect("a folder");
    race(&sqlite_url(&folder.path().join("portcullis.db"))).await;
}

#[tokio::test]
async fn processes_that_race_on_a_server_have_one_winner() {
    let schema = Schema::new().await;
    race(&schema.url()).await;
}
