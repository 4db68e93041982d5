//! Categories and pages (J.3, 43 to 57 and 64).

use portcullis::domain::{
    catalog::{CatalogCategory, CatalogPageQuery, CategoryKind},
    error::{Error, ErrorCode},
    installation::{FailureCode, Installation},
    revision::Revision,
};

use super::{
    fakes::Fault,
    world::{World, ada, broken, key, page, release},
};

fn query(size: i64, token: &str, filter: &str) -> CatalogPageQuery {
    CatalogPageQuery::parse("tools", size, token, filter).expect("a query")
}

async fn s043_s044_what_is_seen_is_stored_once() {
    let world = World::new().await;
    world.page("", "next", &[release("echo", "1.0.0")]);
    let first = world.app.catalog_page(&ada(), &query(10, "", "")).await.expect("a page");
    assert_eq!(first.next_page_token, "next");
    assert_eq!(first.revision, Revision(1));
    assert_eq!(world.stored("echo").await.revision, Revision(1));
    let before = world.state().await;
    let again = world.app.catalog_page(&ada(), &query(10, "", "")).await.expect("a page");
    assert_eq!((again.revision, again.items), (first.revision, first.items));
    assert_eq!(world.state().await, before);
}

async fn s043_what_is_seen_can_be_installed_at_once() {
    let world = World::new().await;
    world.page("", "", &[release("echo", "1.0.0")]);
    world.app.catalog_page(&ada(), &query(10, "", "")).await.expect("a page");
    world.install("echo").await;
}

async fn s045_s046_the_sources_errors_keep_their_meaning() {
    let world = World::new().await;
    for (given, code, retryable) in [
        (ErrorCode::InvalidManifest, ErrorCode::InvalidManifest, false),
        (ErrorCode::UpstreamUnavailable, ErrorCode::UpstreamUnavailable, true),
        (ErrorCode::ArtifactUnavailable, ErrorCode::UpstreamUnavailable, true),
    ] {
        world.catalog.faults.push(Fault::of(given));
        world.refused(world.app.catalog_page(&ada(), &query(1, "", "")), code, retryable).await;
        world.catalog.faults.push(Fault::of(given));
        world.refused(world.app.categories(), code, retryable).await;
    }
}

async fn s047_the_filter_goes_on_until_it_has_enough() {
    let world = World::with_echo().await;
    world.page("", "second", &[release("echo", "1.0.0")]);
    world.page("second", "", &[release("feeds", "1.0.0")]);
    let page = world.app.catalog_page(&ada(), &query(1, "", "not_installed")).await.expect("a page");
    assert_eq!(page.items.len(), 1);
    assert_eq!(page.items[0].connector.key, key("feeds"));
    assert_eq!(page.next_page_token, "");
    assert_eq!(world.stored("feeds").await.revision, page.revision);
}

async fn the_filter_asks_only_for_what_it_misses() {
    let world = World::with_echo().await;
    world.page("", "second", &[release("echo", "1.0.0"), release("feeds", "1.0.0")]);
    world.page("second", "third", &[release("other", "1.0.0")]);
    let page = world.app.catalog_page(&ada(), &query(2, "", "not_installed")).await.expect("a page");
    let sizes: Vec<u32> = world.catalog.asked.lock().iter().map(|query| query.page_size).collect();
    assert_eq!(sizes, [2, 1]);
    assert_eq!(page.items.len(), 2);
    assert_eq!(page.next_page_token, "third");
}

async fn s048_a_connector_whose_files_are_gone_counts_as_not_installed() {
    let world = World::with_echo().await;
    world.page("", "", &[release("echo", "1.0.0")]);
    let mut connector = world.stored("echo").await;
    let installed = connector.installation.installed().cloned();
    let failure_code = FailureCode(FailureCode::PHYSICALLY_ABSENT.into());
    connector.installation = Installation::Failed { failure_code, installed };
    world.save(connector).await;
    let page = world.app.catalog_page(&ada(), &query(5, "", "not_installed")).await.expect("a page");
    assert_eq!(page.items.len(), 1);
}

async fn s049_everything_installed_is_an_empty_page() {
    let world = World::with_echo().await;
    world.page("", "second", &[release("echo", "1.0.0")]);
    world.page("second", "", &[]);
    let page = world.app.catalog_page(&ada(), &query(5, "", "not_installed")).await.expect("a page");
    assert!(page.items.is_empty());
    assert_eq!(page.next_page_token, "");
}

async fn s050_a_slow_older_page_does_not_overwrite_a_newer_one() {
    let world = World::new().await;
    world.page("", "", &[release("echo", "1.0.0")]);
    world.catalog.page_gate.close();
    let app = world.app.clone();
    let slow = tokio::spawn(async move { app.catalog_page(&ada(), &query(5, "", "")).await });
    world.catalog.page_gate.arrival().await;
    world.offer(&[release("echo", "2.0.0")]).await;
    let before = world.state().await;
    world.catalog.page_gate.open();
    let page = slow.await.expect("no panic").expect("a page");
    assert_eq!(world.state().await, before);
    assert_eq!(page.items[0].connector.release.version.to_string(), "2.0.0");
    assert_eq!(page.revision, world.revision().await);
}

async fn s051_a_slow_older_page_does_not_bring_back_what_was_delisted() {
    let world = World::with_echo().await;
    world.page("", "", &[release("echo", "1.0.0"), release("unseen", "1.0.0")]);
    world.catalog.page_gate.close();
    let app = world.app.clone();
    let slow = tokio::spawn(async move { app.catalog_page(&ada(), &query(5, "", "")).await });
    world.catalog.page_gate.arrival().await;
    world.offer(&[]).await;
    world.catalog.page_gate.open();
    let page = slow.await.expect("no panic").expect("a page");
    assert!(page.items.is_empty());
    assert!(world.stored("echo").await.compatibility.is_removed_from_catalog());
    assert_eq!(world.store.connector(&key("unseen")).await.expect("a reading"), None);
}

async fn s052_a_source_that_does_not_get_on_is_refused() {
    let world = World::with_echo().await;
    for (token, next) in [("", "second"), ("second", "third"), ("third", "second")] {
        world.page(token, next, &[release("echo", "1.0.0")]);
    }
    world
        .refused(
            world.app.catalog_page(&ada(), &query(1, "", "not_installed")),
            ErrorCode::InvalidManifest,
            false,
        )
        .await;
    world.page("self", "self", &[release("echo", "1.0.0")]);
    let query = query(1, "self", "not_installed");
    world.refused(world.app.catalog_page(&ada(), &query), ErrorCode::InvalidManifest, false).await;
}

#[test]
fn s053_s054_a_page_that_cannot_be_asked_for() {
    let refused = |section, size, filter| {
        let error: Error = CatalogPageQuery::parse(section, size, "", filter).expect_err("a refusal");
        assert_eq!((error.code, error.retryable), (ErrorCode::InvalidRequest, false));
    };
    refused("tools", 0, "");
    refused("tools", 101, "");
    refused("  ", 10, "");
    refused("tools", 10, "installed");
}

async fn s055_s056_a_page_that_breaks_a_rule_is_not_stored() {
    let echo = || release("echo", "1.0.0");
    let mut elsewhere = page("", &[echo()]);
    elsewhere.section_id = "other".into();
    let mut blank = page("", &[echo()]);
    blank.entries[0].category_id = " ".into();
    let cases = [
        ("another section", elsewhere),
        ("a blank category", blank),
        ("a duplicate", page("", &[echo(), echo()])),
        ("a release that does not hold", page("", &[echo(), broken("bad")])),
    ];
    for (what, page) in cases {
        let world = World::new().await;
        world.catalog.pages.lock().insert(String::new(), page);
        let query = query(10, "", "");
        let scope = ada();
        let attempt = world.app.catalog_page(&scope, &query);
        let error = world.refused(attempt, ErrorCode::InvalidManifest, false).await;
        assert!(!error.message.is_empty(), "{what}");
    }
}

async fn s057_a_category_that_breaks_a_rule_is_refused() {
    let category = |id: &str, count: i64| CatalogCategory {
        category_id: id.into(),
        kind: CategoryKind::Category,
        sort_order: 0,
        item_count: count,
        display_name_zh: None,
        display_name_en: None,
    };
    let world = World::new().await;
    let set = |categories: Vec<CatalogCategory>| *world.catalog.categories.lock() = categories;
    set(vec![category("a", 1), category("b", 0)]);
    assert_eq!(world.app.categories().await.expect("categories").len(), 2);
    for wrong in [vec![category(" ", 1)], vec![category("a", -1)], vec![category("a", 1), category("a", 1)]] {
        set(wrong);
        world.refused(world.app.categories(), ErrorCode::InvalidManifest, false).await;
    }
}

async fn s064_a_page_that_lists_a_delisted_connector_lists_it_again() {
    let world = World::with_echo().await;
    world.offer(&[]).await;
    assert!(world.stored("echo").await.compatibility.is_removed_from_catalog());
    world.page("", "", &[release("echo", "1.0.0")]);
    let page = world.app.catalog_page(&ada(), &query(5, "", "")).await.expect("a page");
    assert_eq!(page.items.len(), 1);
    world.app.connector(&key("echo")).await.expect("it is visible");
}

on_every_store! {
    s043_s044_what_is_seen_is_stored_once,
    s043_what_is_seen_can_be_installed_at_once,
    s045_s046_the_sources_errors_keep_their_meaning,
    s047_the_filter_goes_on_until_it_has_enough,
    the_filter_asks_only_for_what_it_misses,
    s048_a_connector_whose_files_are_gone_counts_as_not_installed,
    s049_everything_installed_is_an_empty_page,
    s050_a_slow_older_page_does_not_overwrite_a_newer_one,
    s051_a_slow_older_page_does_not_bring_back_what_was_delisted,
    s052_a_source_that_does_not_get_on_is_refused,
    s055_s056_a_page_that_breaks_a_rule_is_not_stored,
    s057_a_category_that_breaks_a_rule_is_refused,
    s064_a_page_that_lists_a_delisted_connector_lists_it_again,
}
