//! The market as a whole, against a model: sequences of whatever can happen, chosen by
//! chance, on two workers over one database, with faults of every port, deaths between
//! any two writes, and steps of one worker in the middle of another's.
//!
//! `step` says what can happen, `device` does it, `expect` says what must come of it
//! where nothing goes wrong, and `seen` what must hold whatever goes wrong. A case ends
//! with everything healed: then every operation ends and every runtime is as it should.
//!
//! `PORTCULLIS_MODEL_CASES` multiplies the number of cases, for a long run. A case that
//! fails is made smaller, and its seed is kept in `tests/it/model/regressions.txt` and
//! tried first from then on.

mod boot;
mod case;
mod device;
mod expect;
mod healing;
mod mortal;
mod mortal_tx;
mod seen;
mod step;
mod tally;

use std::sync::Arc;

use proptest::{
    prelude::*,
    test_runner::{FileFailurePersistence, TestRunner},
};

use tally::Tally;

use crate::store::postgres::Schema;

/// What a run of the usual number of cases cannot miss.
const HAPPENS: &[&str] = &[
    "begin: done",
    "death",
    "disconnect_authorization completed",
    "install completed",
    "install failed",
    "refresh_catalog completed",
    "start_authorization completed",
    "uninstall completed",
];

/// So many times the usual cases.
fn factor() -> u32 {
    std::env::var("PORTCULLIS_MODEL_CASES").ok().map_or(1, |text| text.parse().expect("a number of times"))
}

/// Runs the cases on a thread of their own: unoptimized, the futures of a whole case
/// are larger than the stack of a test.
fn run(
    cases: u32,
    length: usize,
    expected: &[&str],
    case: impl Fn(&Arc<Tally>, &[step::Step], bool) + Send + 'static,
) {
    let tally = Arc::<Tally>::default();
    let counted = tally.clone();
    let persistence = FileFailurePersistence::Direct(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/model/regressions.txt"
    ));
    let config = ProptestConfig {
        cases: cases * factor(),
        failure_persistence: Some(Box::new(persistence)),
        max_shrink_time: 60_000,
        ..ProptestConfig::default()
    };
    let all = move || {
        let strategy = (step::steps(length), any::<bool>());
        let outcome = TestRunner::new(config).run(&strategy, |(steps, two_nodes)| {
            case(&counted, &steps, two_nodes);
            Ok(())
        });
        if let Err(failure) = outcome {
            panic!("{failure}");
        }
    };
    let cases = std::thread::Builder::new().stack_size(64 << 20).spawn(all).expect("a thread");
    if let Err(failure) = cases.join() {
        std::panic::resume_unwind(failure);
    }
    tally.settle(expected);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn whatever_happens_holds_on_sqlite_in_memory() {
    run(48, 100, HAPPENS, |tally, steps, two_nodes| {
        runtime().block_on(case::run("sqlite::memory:".to_owned(), two_nodes, steps, tally));
    });
}

#[test]
fn whatever_happens_holds_in_a_file_and_leaves_no_secret_in_it() {
    run(4, 80, &[], |tally, steps, two_nodes| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("portcullis.db");
        runtime().block_on(case::run(portcullis::store::sqlite_url(&file), two_nodes, steps, tally));
        let mut read = 0;
        for entry in std::fs::read_dir(folder.path()).expect("a folder") {
            // The log goes with the last connection.
            let Ok(bytes) = std::fs::read(entry.expect("an entry").path()) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(device::SECRET) && !text.contains(device::LINK), "a secret in the file");
            read += bytes.len();
        }
        assert!(read > 0, "the file is read");
    });
}

#[test]
fn whatever_happens_holds_on_postgresql_and_leaves_no_secret_in_it() {
    run(4, 80, &[], |tally, steps, two_nodes| {
        runtime().block_on(async {
            let schema = Schema::new().await;
            case::run(schema.url(), two_nodes, steps, tally).await;
            let text = dump(&schema).await;
            assert!(!text.contains(device::SECRET) && !text.contains(device::LINK), "a secret in {text}");
        });
    });
}

/// Every row of every table, as text.
async fn dump(schema: &Schema) -> String {
    use sqlx::{AssertSqlSafe, Connection as _, Row as _};
    let mut conn = schema.connect().await;
    let tables = sqlx::query(
        "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema()",
    )
    .fetch_all(&mut conn)
    .await
    .expect("the tables");
    assert!(tables.len() > 5, "the tables are read");
    let mut text = String::new();
    for table in tables {
        let name: String = table.get(0);
        let rows = sqlx::query(AssertSqlSafe(format!("SELECT t::text FROM {name} AS t")))
            .fetch_all(&mut conn)
            .await
            .expect("the rows");
        for row in rows {
            text.push_str(&row.get::<String, _>(0));
            text.push('\n');
        }
    }
    conn.close().await.expect("the connection ends");
    text
}
