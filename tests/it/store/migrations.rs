//! Opening a PostgreSQL database: whose tables are there, and that daemons which start
//! at once make them once. For database files see `file.rs`.

use std::collections::BTreeSet;

use portcullis::{
    domain::{
        error::{Error, ErrorCode},
        id::NodeId,
        revision::Revision,
    },
    ports::Store as _,
    store::{SqlStore, StoreOptions},
};

use super::postgres::{Schema, server_url};

async fn advance(store: &SqlStore) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    tx.advance_revision();
    tx.commit().await
}

/// Asserts that opening is refused, and that everything stays as it was.
async fn refused(schema: &Schema, says: &str) {
    let before = schema.contents().await;
    let error = schema.open().await.expect_err(says);
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, false), "{error:?}");
    assert!(error.message.contains(says), "{}", error.message);
    assert_eq!(schema.contents().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn daemons_that_start_at_once_make_one_set_of_tables() {
    for _ in 0..8 {
        let schema = Schema::new().await;
        let opened = futures::future::join_all((0..8).map(|_| schema.open())).await;
        let stores: Vec<SqlStore> = opened.into_iter().map(|store| store.expect("a store")).collect();
        let contents = schema.contents().await;
        let tables: BTreeSet<&str> = contents.iter().filter_map(|line| line.split(':').next()).collect();
        let metadata = contents.iter().filter(|line| line.starts_with("metadata: (")).count();
        assert!(tables.contains("operations") && metadata == 1, "{contents:?}");
        for store in &stores {
            advance(store).await.expect("a commit");
        }
        assert_eq!(stores[0].snapshot().await.expect("a snapshot").revision, Revision(8));
    }
}

#[tokio::test]
async fn opening_again_changes_nothing() {
    let schema = Schema::new().await;
    advance(&schema.open().await.expect("a new database")).await.expect("a commit");
    let before = schema.contents().await;
    for _ in 0..2 {
        let again = schema.open().await.expect("the same database");
        assert_eq!(again.snapshot().await.expect("a snapshot").revision, Revision(1));
    }
    assert_eq!(schema.contents().await, before);
}

#[tokio::test]
async fn schemas_of_one_server_are_apart() {
    let (one, other) = (Schema::new().await, Schema::new().await);
    let (here, there) = (one.open().await.expect("a store"), other.open().await.expect("a store"));
    advance(&here).await.expect("a commit");
    assert_eq!(here.snapshot().await.expect("a snapshot").revision, Revision(1));
    assert_eq!(there.snapshot().await.expect("a snapshot").revision, Revision(0));
}

#[tokio::test]
async fn a_newer_programs_database_is_refused_and_left_alone() {
    let schema = Schema::new().await;
    schema.open().await.expect("a new database").close().await;
    schema
        .run(
            "INSERT INTO portcullis_migrations \
             SELECT MAX(version) + 1, 'future', 'x', 0 FROM portcullis_migrations",
        )
        .await;
    refused(&schema, "newer portcullis").await;
}

#[tokio::test]
async fn an_altered_history_is_refused_and_left_alone() {
    for statement in [
        "UPDATE portcullis_migrations SET checksum = 'other' WHERE version = 1",
        "DELETE FROM portcullis_migrations WHERE version = 1",
    ] {
        let schema = Schema::new().await;
        schema.open().await.expect("a new database").close().await;
        schema.run(statement).await;
        refused(&schema, "migration 1 (market)").await;
    }
}

#[tokio::test]
async fn another_programs_tables_are_refused_and_left_alone() {
    let schema = Schema::new().await;
    schema.run("CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('mine')").await;
    refused(&schema, "another program").await;
}

/// A user who may connect, and create in `schema`; their URL and what drops them.
async fn another_user(schema: &Schema, rights: &str) -> (String, String) {
    let name = schema.url().rsplit('=').next().expect("a name").replace("test_", "user_");
    let of_schema = schema.url().rsplit('=').next().expect("a name").to_owned();
    schema
        .run(&format!(
            "CREATE ROLE {name} LOGIN PASSWORD 'word'; GRANT {rights} ON SCHEMA {of_schema} TO {name}"
        ))
        .await;
    let mut url: url::Url = schema.url().parse().expect("a URL");
    url.set_username(&name).expect("a user");
    url.set_password(Some("word")).expect("a password");
    (url.into(), format!("DROP OWNED BY {name}; DROP ROLE {name}"))
}

async fn open_url(url: &str) -> Result<SqlStore, Error> {
    let node_id = NodeId::parse("node").expect("a node id");
    SqlStore::open(StoreOptions { url: url.to_owned(), node_id, lease_clock: None }).await
}

#[tokio::test]
async fn tables_that_the_user_may_not_see_are_another_programs_too() {
    let schema = Schema::new().await;
    schema.run("CREATE TABLE notes (text TEXT)").await;
    let (url, drop_user) = another_user(&schema, "USAGE, CREATE").await;
    let before = schema.contents().await;
    let error = open_url(&url).await.expect_err("the schema is not empty");
    assert!(error.message.contains("another program"), "{error:?}");
    assert_eq!(schema.contents().await, before);
    schema.run(&drop_user).await;
}

#[tokio::test]
async fn a_user_who_may_not_create_tables_is_told_so() {
    let schema = Schema::new().await;
    let (url, drop_user) = another_user(&schema, "USAGE").await;
    let error = open_url(&url).await.expect_err("no table can be made");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, false));
    assert!(error.message.contains("grant it USAGE and CREATE"), "{error:?}");
    assert!(schema.contents().await.is_empty());
    schema.run(&drop_user).await;
}

#[tokio::test]
async fn what_cannot_be_connected_to_is_named_without_its_password() {
    let server: url::Url = server_url().parse().expect("a URL");
    let changed = |change: &dyn Fn(&mut url::Url)| {
        let mut url = server.clone();
        change(&mut url);
        url.to_string()
    };
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let free = nobody.local_addr().expect("an address").port();
    drop(nobody);
    for (url, code, retryable, says) in [
        (
            changed(&|url| url.set_port(Some(free)).expect("a port")),
            ErrorCode::Unavailable,
            true,
            "cannot be reached (connection refused)",
        ),
        (
            changed(&|url| url.set_password(Some("hunter2")).expect("a password")),
            ErrorCode::Unavailable,
            false,
            "correct user and password",
        ),
        (changed(&|url| url.set_path("/missing")), ErrorCode::Unavailable, false, "no such database"),
        (
            changed(&|url| url.set_query(Some("options[search_path]=missing"))),
            ErrorCode::Unavailable,
            false,
            "no schema",
        ),
        (
            changed(&|url| url.set_query(Some("sslmode=require"))),
            ErrorCode::Unavailable,
            false,
            "check sslmode",
        ),
        (
            changed(&|url| url.set_query(Some("sslmode=hunter2"))),
            ErrorCode::InvalidRequest,
            false,
            "sslmode is disable",
        ),
        (
            changed(&|url| url.set_query(Some("pasword=hunter2"))),
            ErrorCode::InvalidRequest,
            false,
            "not known",
        ),
        ("postgres://me:hunter2@host:port/".into(), ErrorCode::InvalidRequest, false, "cannot be read"),
        ("mysql://me:hunter2@host/".into(), ErrorCode::InvalidRequest, false, "must start with"),
    ] {
        let error = open_url(&url).await.expect_err(says);
        assert_eq!((error.code, error.retryable), (code, retryable), "{error:?}");
        assert!(error.message.contains(says), "{}", error.message);
        let everything = format!("{error:?} {error} {:?}", error.cause.as_ref().map(ToString::to_string));
        let password = server.password().expect("a password");
        assert!(!error.message.contains("hunter2") && !everything.contains(password), "{everything}");
    }
}
