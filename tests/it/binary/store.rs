//! `store check`: every rule on every kind of database, and nothing left behind.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use portcullis::{
    ports::{IdSource as _, RandomIds},
    store::contract::RULES,
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tempfile::TempDir;

use super::{Ran, names, portcullis, program};
use crate::store::postgres::server_url;

/// A database of its own on the server, so that what is left in it was left by this test.
struct Database {
    name: String,
}

impl Database {
    fn new() -> Self {
        let name = format!("test_{}", RandomIds.fresh().unwrap());
        on(&server_url(), &format!("CREATE DATABASE {name}"));
        Self { name }
    }

    fn url(&self) -> String {
        let mut url = url::Url::parse(&server_url()).unwrap();
        url.set_path(&self.name);
        url.into()
    }

    fn run(&self, statements: &str) {
        on(&self.url(), statements);
    }

    /// Every schema, table and row that is not the server's own.
    fn contents(&self) -> Vec<String> {
        let rows = "SELECT CAST(nspname AS TEXT) FROM pg_namespace \
             WHERE nspname NOT LIKE 'pg@_%' ESCAPE '@' AND nspname <> 'information_schema' \
             UNION ALL SELECT 'table ' || tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1";
        blocking(async {
            let mut conn = PgConnection::connect(&self.url()).await?;
            let names = sqlx::query_scalar(rows).fetch_all(&mut conn).await?;
            conn.close().await?;
            Ok(names)
        })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        on(&server_url(), &format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}

fn on(url: &str, statements: &str) {
    blocking(async {
        let mut conn = PgConnection::connect(url).await?;
        sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(&mut conn).await?;
        conn.close().await
    });
}

fn blocking<T>(work: impl Future<Output = Result<T, sqlx::Error>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work).unwrap()
}

fn check(url: &str, further: &[&str]) -> Ran {
    let mut args = vec!["store", "check", "--database-url", url];
    args.extend(further);
    portcullis(&args, "")
}

/// Asserts that every rule holds, and is told of by its family.
#[track_caller]
fn all_hold(ran: &Ran) {
    let lines: Vec<&str> = ran.ok().lines().collect();
    assert_eq!(lines.last().copied(), Some(format!("{} passed, 0 failed", RULES.len()).as_str()));
    let mut families: Vec<&str> = RULES.iter().map(|rule| rule.family).collect();
    families.dedup();
    assert_eq!(lines.len(), families.len() + 1, "{lines:?}");
    for family in families {
        let count = RULES.iter().filter(|rule| rule.family == family).count();
        let line = lines.iter().find(|line| line.starts_with(family)).unwrap();
        assert!(line.ends_with(&format!(" {count} passed")), "{line}");
    }
}

#[test]
fn every_rule_holds_on_a_file_and_nothing_is_left() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("portcullis.db");
    let url = format!("sqlite:{}", path.display());
    all_hold(&check(&url, &[]));
    assert_eq!(names(folder.path()), [""; 0]);

    // What is there is not opened either: this is no database.
    fs::write(&path, "dear diary").unwrap();
    check(&url, &["--rule", "outbox::"]).ok();
    assert_eq!(names(folder.path()), ["portcullis.db"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "dear diary");
}

#[test]
fn every_rule_holds_in_memory() {
    all_hold(&check("sqlite::memory:", &[]));
}

#[test]
fn every_rule_holds_on_a_server_and_nothing_is_left() {
    let database = Database::new();
    database.run("CREATE TABLE connectors (mine TEXT); CREATE SCHEMA portcullis_check_of_mine");
    let before = database.contents();
    assert_eq!(before, ["portcullis_check_of_mine", "public", "table connectors"]);
    let ran = check(&database.url(), &[]);
    all_hold(&ran);
    assert_eq!(database.contents(), before);
    let secret = url::Url::parse(&server_url()).unwrap().password().unwrap().to_owned();
    assert!(!ran.stdout.contains(&secret) && !ran.stderr.contains(&secret), "{}", ran.stderr);
}

#[test]
fn without_a_url_a_temporary_folder_is_used_and_said() {
    let folder = TempDir::new().unwrap();
    let output = program(&["store", "check", "--rule", "state::", "--json"])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    assert!(output.status.success());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of_state = RULES.iter().filter(|rule| rule.family == "state").count();
    assert_eq!(document["passed"], of_state);
    assert_eq!(document["failed"], 0);
    assert_eq!(document["rules"].as_array().unwrap().len(), of_state);
    assert_eq!(document["rules"][0]["rule"], "state::a_value_is_what_was_written_last");
    assert_eq!(document["rules"][0]["passed"], true);
    let place = document["database"].as_str().unwrap();
    assert!(place.starts_with(&format!("SQLite files in {}", folder.path().display())), "{place}");
    assert_eq!(names(folder.path()), [""; 0]);

    let said =
        program(&["store", "check", "--rule", "compiled::"]).env("TMPDIR", folder.path()).output().unwrap();
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("as no --database-url was given"), "{said}");
}

#[test]
fn a_role_that_may_not_create_schemas_is_told_what_to_grant() {
    let database = Database::new();
    let role = format!("role_{}", RandomIds.fresh().unwrap());
    database.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'geheim'"));
    let mut url = url::Url::parse(&database.url()).unwrap();
    url.set_username(&role).unwrap();
    url.set_password(Some("geheim")).unwrap();
    let ran = check(url.as_str(), &[]);
    let grant = format!("GRANT CREATE ON DATABASE {} TO {role}", database.name);
    ran.failed(5, &grant);
    assert!(!ran.stderr.contains("geheim"), "{}", ran.stderr);
    assert_eq!(database.contents(), ["public"]);

    database.run(&grant);
    check(url.as_str(), &["--rule", "compiled::"]).ok();
    assert_eq!(database.contents(), ["public"]);
    url.set_password(Some("wrong")).unwrap();
    let ran = check(url.as_str(), &[]);
    ran.failed(5, "password authentication failed");
    assert!(!ran.stderr.contains("wrong"), "{}", ran.stderr);
    database.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn what_cannot_be_checked_says_so() {
    let ran = check("postgres://ann:geheim@127.0.0.1:1/db?password=geheim", &[]);
    ran.failed(5, "the PostgreSQL server 127.0.0.1:1 (database db) cannot be reached");
    assert!(!ran.stderr.contains("geheim"), "{}", ran.stderr);
    check("mysql://ann:geheim@127.0.0.1/db", &[]).failed(2, "must start with sqlite: or postgres:");
    check("sqlite::memory:", &["--rule", "no such rule"]).failed(2, "no rule has that in its name");
    let missing = TempDir::new().unwrap().path().join("deeper/portcullis.db");
    check(&format!("sqlite:{}", missing.display()), &[]).failed(5, "no temporary folder can be made");
    assert!(!missing.parent().unwrap().exists());
}

#[test]
fn a_check_that_is_stopped_leaves_nothing() {
    let (database, folder) = (Database::new(), TempDir::new().unwrap());
    for url in [database.url(), format!("sqlite:{}", folder.path().join("portcullis.db").display())] {
        let mut child = program(&["store", "check", "--database-url", &url])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.starts_with("commits"), "{first}");
        let pid = child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(5), "{said}");
        assert!(said.contains("stopped before its end"), "{said}");
    }
    assert_eq!(database.contents(), ["public"]);
    assert_eq!(names(folder.path()), [""; 0]);
}
