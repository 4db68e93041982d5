//! What breaks beneath a store: files, servers, connections. Each leaves what was
//! stored as it was, and says what to do.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use portcullis::{
    domain::{
        error::{Error, ErrorCode},
        event::ChangedEvent,
        id::NodeId,
        revision::Revision,
    },
    ports::Store as _,
    store::{SqlStore, StoreOptions, sqlite_url},
};
use tempfile::TempDir;

use super::postgres::Schema;

/// What must come true comes true within this.
const PATIENCE: Duration = Duration::from_secs(60);

async fn open(path: &Path) -> Result<SqlStore, Error> {
    let node_id = NodeId::parse("node").expect("a node id");
    SqlStore::open(StoreOptions { url: sqlite_url(path), node_id, lease_clock: None }).await
}

/// A transaction with a row, an event and a revision.
async fn commit(store: &SqlStore, source: &str) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    let revision = tx.advance_revision();
    tx.save_source_revision(source).await?;
    tx.enqueue_changed(&ChangedEvent { revision, ..ChangedEvent::default() }).await?;
    tx.commit().await
}

/// What `commit` has left.
async fn stored(store: &SqlStore) -> (Revision, String, usize) {
    let snapshot = store.snapshot().await.expect("a snapshot");
    let events = store.pending_events(100).await.expect("the events").len();
    (snapshot.revision, snapshot.source_revision, events)
}

/// A database file with some pages, closed.
async fn written(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("portcullis.db");
    let store = open(&path).await.expect("a new database");
    for number in 0..100 {
        store.set_setting(&format!("name {number}"), &"value ".repeat(200)).await.expect("a row");
    }
    commit(&store, "before").await.expect("a commit");
    store.close().await;
    path
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_left_as_it_is() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 4] = [
        ("its first bytes", |bytes| bytes[..16].fill(0xa5)),
        ("all of its header", |bytes| bytes[..100].fill(0xa5)),
        ("a page in the middle", |bytes| {
            let middle = bytes.len() / 4096 / 2 * 4096;
            bytes[middle..middle + 4096].fill(0xa5);
        }),
        ("its second half", |bytes| bytes.truncate(bytes.len() / 2 / 4096 * 4096)),
    ];
    for (what, damage) in damages {
        let folder = tempfile::tempdir().expect("a folder");
        let path = written(&folder).await;
        let whole = fs::read(&path).expect("the file");
        assert!(whole.len() > 16 * 4096, "there is a middle");
        let mut broken = whole.clone();
        damage(&mut broken);
        fs::write(&path, &broken).expect("the damage");
        let error = open(&path).await.expect_err(what);
        assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, false), "{what}: {error:?}");
        let says = ["damaged", "not a database"].iter().any(|said| error.message.contains(said));
        assert!(says, "{what}: {}", error.message);
        assert!(fs::read(&path).expect("the file") == broken, "{what}: the file has changed");

        fs::write(&path, &whole).expect("a backup");
        let store = open(&path).await.expect("the backup");
        assert_eq!(stored(&store).await, (Revision(1), "before".into(), 1));
    }
}

/// Runs `work` on a thread that file permissions hold for, root's too.
#[expect(unsafe_code, reason = "there is no safe call that gives up root for one thread")]
fn without_privileges<T: Send>(work: impl AsyncFnOnce() -> T + Send) -> T {
    let thread = || {
        #[cfg(target_os = "linux")]
        // SAFETY: they take numbers alone, and change this thread alone.
        unsafe {
            libc::setfsgid(65534);
            libc::setfsuid(65534);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(work())
    };
    std::thread::scope(|scope| scope.spawn(thread).join().expect("no panic"))
}

/// Asserts that a daemon without privileges is refused with `modes` of folder and
/// file, and that the database works again after.
async fn refused_with(modes: (u32, u32)) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = written(&folder).await;
    let before = fs::read(&path).expect("the file");
    let set = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode");
    };
    set(&path, modes.1);
    set(folder.path(), modes.0);
    let error = without_privileges(async || match open(&path).await {
        Ok(store) => commit(&store, "after").await.expect_err("nothing can be written"),
        Err(error) => error,
    });
    set(folder.path(), 0o700);
    set(&path, 0o600);
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true), "{error:?}");
    assert!(error.message.contains("write access"), "{}", error.message);
    assert!(fs::read(&path).expect("the file") == before, "the file has changed");
    let store = open(&path).await.expect("the same database");
    assert_eq!(stored(&store).await, (Revision(1), "before".into(), 1));
    commit(&store, "after").await.expect("a commit");
}

#[tokio::test]
async fn a_file_that_may_only_be_read_is_refused() {
    refused_with((0o755, 0o444)).await;
}

#[tokio::test]
async fn a_folder_that_may_only_be_read_is_refused() {
    refused_with((0o555, 0o644)).await;
}

#[tokio::test]
async fn a_folder_that_nothing_can_be_made_in_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).expect("the mode");
    let path = folder.path().join("portcullis.db");
    let error = without_privileges(async || open(&path).await.expect_err("it cannot be made"));
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, false));
    assert!(error.message.contains("cannot be created: permission denied"), "{}", error.message);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_server_without_room_loses_nothing_and_blocks_nothing() {
    let schema = Schema::new().await;
    let store = schema.open().await.expect("a store");
    commit(&store, "before").await.expect("there is room");
    // What the server raises when its disk is full, at the last write of a commit.
    schema
        .run(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS \
             $$BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END$$; \
             CREATE TRIGGER full_disk BEFORE UPDATE ON metadata EXECUTE FUNCTION full_disk()",
        )
        .await;
    let error = commit(&store, "after").await.expect_err("there is no room");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true));
    assert!(error.message.contains("full"), "{}", error.message);
    assert_eq!(stored(&store).await, (Revision(1), "before".into(), 1));
    schema.run("DROP FUNCTION full_disk CASCADE").await;
    commit(&store, "after").await.expect("there is room again");
    assert_eq!(stored(&store).await, (Revision(2), "after".into(), 2));
}

#[tokio::test]
async fn a_connection_that_ends_within_a_transaction_leaves_nothing() {
    let schema = Schema::new().await;
    let store = schema.open().await.expect("a store");
    commit(&store, "before").await.expect("a commit");
    for before_commit in [false, true] {
        let mut tx = store.begin().await.expect("a transaction");
        let revision = tx.advance_revision();
        tx.save_source_revision("lost").await.expect("a step");
        tx.enqueue_changed(&ChangedEvent { revision, ..ChangedEvent::default() }).await.expect("a step");
        assert_eq!(schema.disconnect("idle in transaction").await, 1);
        let error = if before_commit {
            tx.commit().await.expect_err("nobody is there")
        } else {
            let error = tx.connectors().await.expect_err("nobody is there");
            tx.commit().await.expect_err("a step is missing");
            error
        };
        assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true), "{error:?}");
        assert!(error.message.contains("database"), "{}", error.message);
        assert_eq!(stored(&store).await, (Revision(1), "before".into(), 1));
    }
    commit(&store, "after").await.expect("the next transaction works");
    assert_eq!(stored(&store).await, (Revision(2), "after".into(), 2));
}

#[tokio::test]
async fn connections_that_end_while_nobody_uses_them_are_replaced() {
    let schema = Schema::new().await;
    let store = schema.open().await.expect("a store");
    commit(&store, "before").await.expect("a commit");
    for number in 1..4 {
        assert!(schema.disconnect("idle").await >= 2, "a reader and a writer");
        assert_eq!(stored(&store).await.0, Revision(number), "the first question is answered");
        commit(&store, "after").await.expect("the first commit succeeds");
    }
}

#[tokio::test]
async fn whoever_hangs_within_a_transaction_loses_its_turn() {
    let schema = Schema::new().await;
    let (hung, other) = (schema.open().await.expect("a store"), schema.open().await.expect("another daemon"));
    let mut tx = hung.begin().await.expect("a transaction");
    tx.advance_revision();
    tx.save_source_revision("hung").await.expect("a step");
    let error = commit(&other, "other").await.expect_err("it is not its turn");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true), "{error:?}");
    other.snapshot().await.expect("reading goes on");
    let waiting = async {
        while let Err(error) = commit(&other, "other").await {
            assert_eq!(error.code, ErrorCode::Unavailable, "{error:?}");
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the turn comes round");
    let error = tx.commit().await.expect_err("the turn is over");
    assert!(error.retryable, "{error:?}");
    assert_eq!(stored(&hung).await, (Revision(1), "other".into(), 1));
    commit(&hung, "back").await.expect("it takes turns again");
    assert_eq!(stored(&other).await, (Revision(2), "back".into(), 2));
}

/// A server that no other test uses.
struct OwnServer {
    folder: TempDir,
    url: String,
}

impl OwnServer {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = Self::tell("start", folder.path());
        Self { folder, url }
    }

    fn tell(verb: &str, folder: &Path) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/postgres");
        let done = Command::new(script).arg(verb).arg(folder).output().expect("the script runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let said = String::from_utf8(done.stdout).expect("text");
        said.lines().last().unwrap_or_default().to_owned()
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let _ = std::panic::catch_unwind(|| Self::tell("stop", self.folder.path()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_outlives_a_crash_of_its_server() {
    let server = OwnServer::start();
    let schema = Schema::on(server.url.clone()).await;
    let store = schema.open().await.expect("a store");
    let mut changes = store.changes();
    let listening = tokio::time::timeout(PATIENCE, changes.wait_for(|count| *count > 0)).await;
    drop(listening.expect("in time").expect("the store is there"));
    commit(&store, "before").await.expect("a commit");
    let mut tx = store.begin().await.expect("a transaction");
    let revision = tx.advance_revision();
    tx.save_source_revision("lost").await.expect("a step");
    tx.enqueue_changed(&ChangedEvent { revision, ..ChangedEvent::default() }).await.expect("a step");
    changes.mark_unchanged();

    OwnServer::tell("restart", server.folder.path());

    let error = tx.commit().await.expect_err("the server knows nothing of it");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true), "{error:?}");
    assert_eq!(stored(&store).await, (Revision(1), "before".into(), 1), "what was answered, and no more");
    commit(&store, "after").await.expect("the next transaction works");
    assert_eq!(stored(&store).await, (Revision(2), "after".into(), 2));
    let told = tokio::time::timeout(PATIENCE, changes.changed()).await;
    told.expect("changes are told again").expect("the store is there");
}
