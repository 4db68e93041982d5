//! Static catalogs: listed, paged, combined, cached.

use std::{fs, path::Path, sync::Arc};

use portcullis::{
    artifacts::{
        ArtifactFetcher as _,
        catalog::{CATALOG_FILE, CombinedCatalog, StaticCatalog, StaticCatalogDocument},
    },
    domain::{
        catalog::{CatalogCategory, CatalogEntry, CategoryKind, SourcePage, SourcePageQuery},
        error::{Error, ErrorCode},
        release::MEDIA_TYPE_BUNDLE,
    },
    ports::CatalogSource,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    server::{Answer, Server},
    world::{describe, honest, verdict},
};

fn category(id: &str, kind: CategoryKind) -> CatalogCategory {
    CatalogCategory {
        category_id: id.into(),
        kind,
        sort_order: 0,
        item_count: 99,
        display_name_zh: None,
        display_name_en: Some(id.to_uppercase()),
    }
}

fn entry(key: &str, category_id: &str, featured: bool) -> CatalogEntry {
    let release = describe(key, "1.0.0", &honest(key), MEDIA_TYPE_BUNDLE);
    CatalogEntry { category_id: category_id.into(), featured, release }
}

fn document(keys: &[&str]) -> StaticCatalogDocument {
    let categories = vec![
        category("tools", CategoryKind::Category),
        category("news", CategoryKind::Category),
        category("best", CategoryKind::Featured),
    ];
    let entries = keys.iter().enumerate().map(|(at, key)| entry(key, "tools", at == 0)).collect();
    StaticCatalogDocument::assemble(categories, entries).expect("a document")
}

fn json_of(document: &StaticCatalogDocument) -> Value {
    serde_json::to_value(document).expect("json")
}

fn write(folder: &Path, document: &Value) {
    fs::write(folder.join(CATALOG_FILE), document.to_string()).expect("written");
}

fn at(folder: &Path) -> StaticCatalog {
    StaticCatalog::new(folder.to_str().expect("text"), &[]).expect("a catalog")
}

async fn page(
    catalog: &dyn CatalogSource,
    section: &str,
    size: u32,
    token: &str,
) -> Result<SourcePage, Error> {
    let query = SourcePageQuery { section_id: section.into(), page_size: size, page_token: token.to_owned() };
    catalog.page(&query).await
}

fn keys(page: &SourcePage) -> Vec<String> {
    page.entries.iter().map(|entry| entry.release.connector_key.to_string()).collect()
}

#[tokio::test]
async fn a_directory_catalog_is_listed_and_counted() {
    let folder = TempDir::new().expect("a folder");
    let mut json = json_of(&document(&["a", "b", "c"]));
    json["fromTheFuture"] = json!({ "x": 1 });
    json["entries"][0]["fromTheFuture"] = json!(true);
    json["categories"][0]["itemCount"] = json!(-5);
    write(folder.path(), &json);
    for location in [folder.path().to_path_buf(), folder.path().join(CATALOG_FILE)] {
        let catalog = at(&location);
        let counts: Vec<(String, i64)> = catalog
            .categories()
            .await
            .expect("categories")
            .into_iter()
            .map(|category| (category.category_id, category.item_count))
            .collect();
        assert_eq!(counts, [("tools".into(), 3), ("news".into(), 0), ("best".into(), 1)]);
        let contents = catalog.contents().await.expect("contents");
        assert_eq!(contents.releases.len(), 3);
        assert_eq!(contents.source_revision, json["sourceRevision"].as_str().expect("text"));
    }
}

#[tokio::test]
async fn pages_walk_a_section_to_its_end() {
    let folder = TempDir::new().expect("a folder");
    write(folder.path(), &json_of(&document(&["a", "b", "c", "d", "e"])));
    let catalog = at(folder.path());
    let mut token = String::new();
    let mut seen = Vec::new();
    for expected in [2, 2, 1] {
        let page = page(&catalog, "tools", 2, &token).await.expect("a page");
        assert_eq!(page.section_id, "tools");
        assert_eq!(page.entries.len(), expected);
        seen.extend(keys(&page));
        token = page.next_page_token;
    }
    assert!(token.is_empty());
    assert_eq!(seen, ["a", "b", "c", "d", "e"]);
    let exact = page(&catalog, "tools", 5, "").await.expect("a page");
    assert!(exact.next_page_token.is_empty(), "a full last page has nothing after it");
    let featured = page(&catalog, "best", 100, "").await.expect("a page");
    assert_eq!(keys(&featured), ["a"]);
    assert_eq!(featured.entries[0].category_id, "tools");
    assert!(page(&catalog, "news", 100, "").await.expect("a page").entries.is_empty());
}

#[tokio::test]
async fn a_token_is_only_good_for_the_edition_and_the_section_it_was_given_for() {
    let folder = TempDir::new().expect("a folder");
    write(folder.path(), &json_of(&document(&["a", "b", "c"])));
    let catalog = at(folder.path());
    let token = page(&catalog, "tools", 2, "").await.expect("a page").next_page_token;
    let mark = token.split_once('.').expect("a token").1;
    for (token, section) in [
        ("2", "tools"),
        ("x", "tools"),
        (".", "tools"),
        (&format!("-1.{mark}"), "tools"),
        (&format!("+1.{mark}"), "tools"),
        (&format!("02.{mark}"), "tools"),
        (&format!("3.{mark}"), "tools"),
        (&format!("99999999999999999999.{mark}"), "tools"),
        (&format!("2.{mark}x"), "tools"),
        (token.as_str(), "best"),
        ("", "no-such-section"),
    ] {
        let error = page(&catalog, section, 2, token).await.expect_err(token);
        assert_eq!(verdict(&error), (ErrorCode::InvalidRequest, false), "{token}");
    }
    write(folder.path(), &json_of(&document(&["a", "b", "c", "d"])));
    let newer = at(folder.path());
    let error = page(&newer, "tools", 2, &token).await.expect_err("another edition");
    assert_eq!(verdict(&error), (ErrorCode::InvalidRequest, false));
    assert!(error.message.contains("start again"), "{error}");
}

#[tokio::test]
async fn a_document_that_breaks_a_rule_is_refused_with_its_name_and_the_rule() {
    let valid = json_of(&document(&["a", "b"]));
    let change = |pointer: &str, value: Value| {
        let mut json = valid.clone();
        *json.pointer_mut(pointer).expect("a place") = value;
        json
    };
    let twice = {
        let mut json = valid.clone();
        let first = json["entries"][0].clone();
        json["entries"].as_array_mut().expect("entries").push(first);
        json
    };
    let cases = [
        ("schemaVersion", change("/schemaVersion", json!("2"))),
        ("sourceRevision", change("/sourceRevision", json!(" "))),
        ("blank", change("/categories/1/categoryId", json!(""))),
        ("listed twice", change("/categories/1/categoryId", json!("tools"))),
        ("readable", change("/categories/1/kind", json!("other"))),
        ("no listed category", change("/entries/0/categoryId", json!("nowhere"))),
        ("no listed category", change("/entries/0/categoryId", json!("best"))),
        ("listed twice", twice),
        ("releaseDigest", change("/entries/1/release/version", json!("1.0.1"))),
        ("manifestDigest", change("/entries/1/release/manifest/displayName", json!("Other"))),
        ("readable", change("/entries/1/release/manifest/permissions", json!([1]))),
        ("artifact.key", change("/entries/1/release/artifact/key", json!("../x"))),
        ("readable", json!({})),
        ("readable", json!([])),
    ];
    for (word, json) in cases {
        let folder = TempDir::new().expect("a folder");
        write(folder.path(), &json);
        let catalog = at(folder.path());
        for error in [
            catalog.contents().await.expect_err(word),
            catalog.categories().await.expect_err(word),
            page(&catalog, "tools", 10, "").await.expect_err(word),
        ] {
            assert_eq!(verdict(&error), (ErrorCode::InvalidManifest, false), "{word}");
            assert!(error.message.contains(word) && error.message.contains("catalog "), "{word}: {error}");
        }
    }
}

#[tokio::test]
async fn a_catalog_that_is_not_there_may_come_and_one_that_changes_is_read_again() {
    let folder = TempDir::new().expect("a folder");
    let catalog = at(folder.path());
    let error = catalog.contents().await.expect_err("nothing there");
    assert_eq!(verdict(&error), (ErrorCode::UpstreamUnavailable, true));
    write(folder.path(), &json_of(&document(&["a"])));
    assert_eq!(catalog.contents().await.expect("there").releases.len(), 1);
    write(folder.path(), &json_of(&document(&["a", "b"])));
    assert_eq!(catalog.contents().await.expect("changed").releases.len(), 2);
    assert_eq!(keys(&page(&catalog, "tools", 10, "").await.expect("a page")), ["a", "b"]);
    fs::write(folder.path().join(CATALOG_FILE), "{").expect("broken");
    catalog.contents().await.expect_err("what is broken now is not hidden by what was");
}

#[tokio::test]
async fn a_remote_catalog_is_asked_once_for_many_pages_and_downloaded_once() {
    let server = Server::start().await;
    let json = json_of(&document(&["a", "b", "c"])).to_string();
    server.set("/catalog/catalog.json", Answer::ok(json.as_bytes()).with("etag", "\"one\""));
    let catalog = StaticCatalog::new(&server.url, &[]).expect("a catalog");
    catalog.categories().await.expect("categories");
    let first = page(&catalog, "tools", 1, "").await.expect("a page");
    page(&catalog, "tools", 1, &first.next_page_token).await.expect("a page");
    assert_eq!(server.seen().len(), 1);
    assert_eq!(catalog.contents().await.expect("contents").releases.len(), 3);
    assert_eq!(server.last_headers()["if-none-match"], "\"one\"");
    assert_eq!(server.seen().len(), 2, "reading everything asks again");

    let changed = json_of(&document(&["a", "b"])).to_string();
    server.set("/catalog/catalog.json", Answer::ok(changed.as_bytes()).with("etag", "\"two\""));
    assert_eq!(catalog.contents().await.expect("contents").releases.len(), 2);
}

#[tokio::test]
async fn pages_ask_again_once_the_document_is_no_longer_fresh() {
    let folder = TempDir::new().expect("a folder");
    write(folder.path(), &json_of(&document(&["a"])));
    let patient = at(folder.path());
    let eager = at(folder.path()).fresh_for(std::time::Duration::ZERO);
    page(&patient, "tools", 10, "").await.expect("a page");
    page(&eager, "tools", 10, "").await.expect("a page");
    write(folder.path(), &json_of(&document(&["a", "b"])));
    assert_eq!(keys(&page(&patient, "tools", 10, "").await.expect("a page")), ["a"]);
    assert_eq!(keys(&page(&eager, "tools", 10, "").await.expect("a page")), ["a", "b"]);
}

#[tokio::test]
async fn a_remote_catalog_that_fails_says_whether_it_may_heal() {
    let server = Server::start().await;
    let huge = Answer { chunked: true, body: vec![b' '; (64 << 20) + 1], ..Answer::ok(b"") };
    let announced = Answer { body: vec![b' '; (64 << 20) + 1], ..Answer::ok(b"") };
    let cases = [
        ("missing", Answer::status(404), ErrorCode::UpstreamUnavailable, false),
        ("broken", Answer::status(500), ErrorCode::UpstreamUnavailable, true),
        ("elsewhere", Answer::redirect("https://example.org/"), ErrorCode::UpstreamUnavailable, false),
        ("a page", Answer::ok(b"<html>"), ErrorCode::InvalidManifest, false),
        ("broken off", Answer { broken: true, ..Answer::ok(b"{") }, ErrorCode::UpstreamUnavailable, true),
        ("announced too large", announced, ErrorCode::UpstreamUnavailable, false),
        ("too large", huge, ErrorCode::UpstreamUnavailable, false),
    ];
    let catalog = StaticCatalog::new(&server.url, &[]).expect("a catalog");
    for (name, answer, code, retryable) in cases {
        server.set("/catalog/catalog.json", answer);
        let error = catalog.contents().await.expect_err(name);
        assert_eq!(verdict(&error), (code, retryable), "{name}: {error}");
        assert!(error.message.contains(&server.url), "{error}");
    }
}

fn combine(folders: &[&TempDir]) -> CombinedCatalog {
    CombinedCatalog::new(folders.iter().map(|folder| Arc::new(at(folder.path()))).collect())
}

#[tokio::test]
async fn several_catalogs_are_one() {
    let (one, two) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    write(one.path(), &json_of(&document(&["a", "b"])));
    write(two.path(), &json_of(&document(&["c"])));
    let catalog = combine(&[&one, &two]);
    let tools = catalog.categories().await.expect("categories").remove(0);
    assert_eq!((tools.category_id.as_str(), tools.item_count), ("tools", 3));
    let first = page(&catalog, "tools", 2, "").await.expect("a page");
    let last = page(&catalog, "tools", 2, &first.next_page_token).await.expect("a page");
    assert_eq!([keys(&first), keys(&last)].concat(), ["a", "b", "c"]);
    let before = catalog.contents().await.expect("contents").source_revision;
    write(two.path(), &json_of(&document(&["d"])));
    assert_ne!(catalog.contents().await.expect("contents").source_revision, before);
    let error = page(&catalog, "tools", 2, &first.next_page_token).await.expect_err("another edition");
    assert_eq!(verdict(&error), (ErrorCode::InvalidRequest, false));
    assert!(CombinedCatalog::new(Vec::new()).contents().await.expect("no catalog").releases.is_empty());
}

#[tokio::test]
async fn what_two_catalogs_say_differently_is_refused_naming_both() {
    let (one, two) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    write(one.path(), &json_of(&document(&["a", "b"])));
    write(two.path(), &json_of(&document(&["b"])));
    let catalog = combine(&[&one, &two]);
    let error = catalog.contents().await.expect_err("a connector listed by both");
    assert_eq!(verdict(&error), (ErrorCode::InvalidManifest, false));
    for word in ["b", one.path().to_str().expect("text"), two.path().to_str().expect("text")] {
        assert!(error.message.contains(word), "{error} names {word}");
    }
    page(&catalog, "tools", 2, "").await.expect_err("pages as well");

    let odd = StaticCatalogDocument::assemble(vec![category("tools", CategoryKind::Featured)], Vec::new());
    write(two.path(), &json_of(&odd.expect("a document")));
    let error = catalog.contents().await.expect_err("a category of two kinds");
    assert_eq!(verdict(&error), (ErrorCode::InvalidManifest, false));

    fs::remove_file(two.path().join(CATALOG_FILE)).expect("removed");
    let error = catalog.contents().await.expect_err("what one lists would count as removed");
    assert_eq!(verdict(&error), (ErrorCode::UpstreamUnavailable, true));
}

#[tokio::test]
async fn bytes_come_from_the_catalog_that_lists_the_release() {
    let (one, two) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    write(one.path(), &json_of(&document(&["a"])));
    write(two.path(), &json_of(&document(&["b"])));
    let release = entry("b", "tools", false).release;
    fs::write(one.path().join(&release.artifact.key), honest("b")).expect("published elsewhere");
    let target = TempDir::new().expect("a folder");
    let destination = target.path().join("archive");

    let catalog = combine(&[&one, &two]);
    let error = catalog.fetch(&release, &destination).await.expect_err("the listing catalog has it not");
    assert_eq!(error.code, ErrorCode::ArtifactUnavailable);
    assert!(!destination.exists());
    fs::write(two.path().join(&release.artifact.key), honest("b")).expect("published");
    catalog.fetch(&release, &destination).await.expect("fetched");
    assert_eq!(fs::read(&destination).expect("bytes"), honest("b"));

    // Nobody lists it any more: whoever has the released bytes will do.
    fs::remove_file(&destination).expect("removed");
    write(two.path(), &json_of(&document(&["c"])));
    fs::write(one.path().join(&release.artifact.key), "other bytes").expect("overwritten");
    combine(&[&one, &two]).fetch(&release, &destination).await.expect("fetched");
    assert_eq!(fs::read(&destination).expect("bytes"), honest("b"));

    fs::remove_file(&destination).expect("removed");
    fs::remove_file(two.path().join(&release.artifact.key)).expect("removed");
    combine(&[&one, &two]).fetch(&release, &destination).await.expect_err("nobody has it");
    assert!(!destination.exists());
    let error = CombinedCatalog::new(Vec::new()).fetch(&release, &destination).await.expect_err("no catalog");
    assert_eq!(verdict(&error), (ErrorCode::ArtifactUnavailable, false));
}
