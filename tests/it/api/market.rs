//! The market's routes: what they show, what they hide, what they pass on.

use portcullis::domain::{
    error::ErrorCode,
    operation::{OperationKind, Visibility},
};
use serde_json::{Value, json};

use super::fakes::{Api, Asked, FakeMarket, mutation, operation};

const FEEDS: &str = "/v1/connector-market/connectors/feeds";

/// What the public projection never shows (spec I.4).
fn assert_hides_what_is_private(text: &str) {
    for hidden in [
        "inner/component.wasm",
        "portcullis:connector/connector",
        "artifacts/feeds-1.0.0.tar.gz",
        "object-version-9",
        "candidate",
        "worker-7",
        "\"lease",
        "owner",
        "visibility",
        "\"scope\"",
        "\"execution\"",
        "bootEpoch",
        "device-feeds",
        "reconcile_runtime",
        "\"examples\"",
    ] {
        assert!(!text.contains(hidden), "{hidden:?} is shown in {text}");
    }
}

#[tokio::test]
async fn the_snapshot_shows_permissions_and_hides_the_implementation() {
    let answer = Api::default().get("/v1/connector-market").await;
    let body = answer.ok(200);
    assert_eq!((&body["revision"], &body["eventCursor"]), (&json!(7), &json!(12)));
    assert_eq!(body["catalogState"], "ready");
    let feeds = &body["connectors"][0];
    let manifest = &feeds["release"]["manifest"];
    assert_eq!(manifest["implementation"], json!({ "kind": "wasm_component" }));
    assert_eq!(manifest["permissions"], json!(["network:feeds"]));
    assert_eq!(
        manifest["access"],
        json!({
            "allowedHosts": ["api.example"],
            "credential": {
                "hosts": ["api.example"],
                "placement": { "in": "header", "name": "authorization", "prefix": "Bearer " }
            },
            "limits": { "memoryBytes": 1_048_576, "cpuMs": 250 }
        })
    );
    assert_eq!(manifest["requiredCapabilities"], json!([]));
    assert_eq!(feeds["runtime"], json!({ "state": "started" }));
    assert_eq!(
        feeds["installation"],
        json!({
            "state": "updating",
            "installedAtUnixMs": 1_700_000_000_000_i64,
            "installedVersion": "0.9.0",
            "installedReleaseId": "feeds@0.9.0",
            "installedReleaseDigest": feeds["installation"]["installedReleaseDigest"],
        })
    );
    assert_hides_what_is_private(&answer.text);
}

#[tokio::test]
async fn the_snapshot_holds_no_private_operation() {
    let answer = Api::default().get("/v1/connector-market").await;
    let operations = answer.ok(200)["operations"].as_array().unwrap().clone();
    assert_eq!(operations.len(), 1);
    assert_eq!(operations[0]["operationId"], "op-1");
    assert_eq!(
        operations[0]["target"],
        json!({
            "connectorKey": "feeds",
            "version": "1.0.0",
            "releaseId": "feeds@1.0.0",
            "releaseDigest": operations[0]["target"]["releaseDigest"],
            "artifactSha256": operations[0]["target"]["artifactSha256"],
        })
    );
}

#[tokio::test]
async fn empty_lists_are_arrays() {
    let api = Api::with_market(FakeMarket { empty: true, ..FakeMarket::default() });
    let snapshot = api.get("/v1/connector-market").await;
    assert_eq!(snapshot.ok(200)["connectors"], json!([]));
    assert_eq!(snapshot.body["operations"], json!([]));
    let page = api.get("/v1/connector-market/catalog?sectionId=tools").await;
    assert_eq!(page.ok(200)["items"], json!([]));
    assert!(page.body.get("nextPageToken").is_none());
}

#[tokio::test]
async fn categories_and_pages_are_mapped_with_the_next_token() {
    let api = Api::default();
    assert_eq!(
        api.get("/v1/connector-market/categories").await.ok(200),
        &json!({ "categories": [{
            "categoryId": "tools", "kind": "category", "sortOrder": 1, "itemCount": 2, "displayNameEn": "Tools"
        }]})
    );
    let page =
        api.get("/v1/connector-market/catalog?sectionId=tools&pageToken=x&installation=not_installed").await;
    assert_eq!(page.ok(200)["nextPageToken"], "after-20");
    assert_eq!(page.body["sectionId"], "tools");
    assert_eq!(page.body["items"][0]["featured"], true);
    assert_eq!(page.body["items"][0]["connector"]["key"], "feeds");
    assert_hides_what_is_private(&page.text);
}

#[tokio::test]
async fn a_page_request_outside_its_bounds_is_refused() {
    let api = Api::default();
    for query in [
        "",
        "?sectionId=%20",
        "?sectionId=tools&pageSize=0",
        "?sectionId=tools&pageSize=101",
        "?sectionId=tools&pageSize=-1",
        "?sectionId=tools&pageSize=many",
        "?sectionId=tools&installation=installed",
        "?sectionId=tools&accountId=other",
    ] {
        let answer = api.get(&format!("/v1/connector-market/catalog{query}")).await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.text);
        answer.refused(400, "connector_market_invalid_request");
    }
}

#[tokio::test]
async fn commands_are_accepted_with_what_the_caller_saw() {
    let api = Api::default();
    let install = api.post(&format!("{FEEDS}:install"), mutation()).await;
    let body = install.ok(202);
    assert_eq!((&body["revision"], &body["operation"]["state"]), (&json!(8), &json!("running")));
    assert_eq!(body["connector"]["key"], "feeds");
    assert_hides_what_is_private(&install.text);
    api.post(&format!("{FEEDS}:uninstall"), mutation()).await.ok(202);
    let refresh = json!({ "clientRequestId": "two", "expectedRevision": 7 });
    assert!(api.post("/v1/connector-market:refresh", refresh).await.ok(202).get("connector").is_none());

    let asked = api.market.as_ref().unwrap().asked.lock().unwrap().clone();
    let [Asked::Install(install), Asked::Uninstall(uninstall), Asked::Refresh(refresh)] = asked.as_slice()
    else {
        panic!("{asked:?}")
    };
    for command in [install, uninstall] {
        assert_eq!(command.connector_key.as_str(), "feeds");
        assert_eq!(command.mutation.client_request_id.as_str(), "one");
        assert_eq!(command.mutation.expected_revision.0, 7);
        assert_eq!(command.expected_connector_revision.unwrap().0, 5);
        assert_eq!(command.mutation.scope.account_id.as_ref().unwrap().as_str(), "local");
    }
    assert_eq!(refresh.scope.account_id.as_ref().unwrap().as_str(), "local");
}

#[tokio::test]
async fn the_switch_answers_with_the_connector() {
    let api = Api::default();
    let mut body = mutation();
    body["enabled"] = false.into();
    let answer = api.ask("PUT", &format!("{FEEDS}/runtime"), Some(body)).await;
    assert_eq!(answer.ok(202)["runtime"], json!({ "state": "stopped" }));
    let asked = api.market.as_ref().unwrap().asked.lock().unwrap().clone();
    assert!(
        matches!(asked.as_slice(), [Asked::SetRuntime(command, false)] if command.connector_key.as_str() == "feeds"),
        "{asked:?}"
    );
}

#[tokio::test]
async fn what_is_not_there_is_not_found_and_what_is_no_key_is_refused() {
    let api = Api::default();
    api.get("/v1/connector-market/connectors/other").await.refused(404, "connector_not_found");
    api.get("/v1/connector-market/operations/other").await.refused(404, "connector_not_found");
    for key in ["UPPER", "-x", "a%2Fb", "a%00b", "%20"] {
        let path = format!("/v1/connector-market/connectors/{key}");
        api.get(&path).await.refused(400, "connector_market_invalid_request");
        api.post(&format!("{path}:install"), mutation())
            .await
            .refused(400, "connector_market_invalid_request");
    }
    assert!(api.market.as_ref().unwrap().asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_operation_is_shown_and_a_private_one_is_not_even_if_the_market_errs() {
    let api = Api::default();
    let shown = api.get("/v1/connector-market/operations/op-1").await;
    assert_eq!(shown.ok(200)["stage"], "installing");
    assert_hides_what_is_private(&shown.text);
    for private in [
        portcullis::domain::operation::Operation { kind: OperationKind::ReconcileRuntime, ..operation() },
        portcullis::domain::operation::Operation { visibility: Visibility::SystemPrivate, ..operation() },
    ] {
        *api.market.as_ref().unwrap().operation.lock().unwrap() = Some(private);
        api.get("/v1/connector-market/operations/op-1").await.refused(404, "connector_not_found");
    }
}

#[tokio::test]
async fn without_a_market_every_market_route_is_unavailable() {
    let api = Api { market: None, ..Api::default() };
    for path in [
        "/v1/connector-market",
        "/v1/connector-market/categories",
        "/v1/connector-market/catalog?sectionId=tools",
        FEEDS,
        "/v1/connector-market/operations/op-1",
    ] {
        api.get(path).await.refused(503, "connector_market_unavailable");
    }
    let answer = api.post(&format!("{FEEDS}:install"), mutation()).await;
    answer.refused(503, "connector_market_unavailable");
    assert_eq!(answer.body["retryable"], true);
}

#[tokio::test]
async fn a_status_that_the_route_does_not_declare_becomes_503_with_its_own_code() {
    let manifest = Api::with_market(FakeMarket::failing(ErrorCode::InvalidManifest));
    let code = ErrorCode::InvalidManifest.as_str();
    manifest.get("/v1/connector-market/catalog?sectionId=tools").await.refused(503, code);
    manifest.get("/v1/connector-market").await.refused(503, code);
    manifest.post(&format!("{FEEDS}:uninstall"), mutation()).await.refused(503, code);
    manifest.post(&format!("{FEEDS}:install"), mutation()).await.refused(422, code);
    let conflict = Api::with_market(FakeMarket::failing(ErrorCode::OperationInProgress));
    conflict.get("/v1/connector-market").await.refused(503, ErrorCode::OperationInProgress.as_str());
    let absent = Api::with_market(FakeMarket::failing(ErrorCode::NotFound));
    absent.get("/v1/connector-market/categories").await.refused(503, ErrorCode::NotFound.as_str());
}

#[tokio::test]
async fn an_unsupported_implementation_is_422_and_a_busy_lane_409() {
    for (code, status) in [
        (ErrorCode::UnsupportedImplementation, 422),
        (ErrorCode::Incompatible, 422),
        (ErrorCode::OperationInProgress, 409),
        (ErrorCode::UpstreamUnavailable, 503),
    ] {
        let api = Api::with_market(FakeMarket::failing(code));
        let answer = api.post(&format!("{FEEDS}:install"), mutation()).await;
        answer.refused(status, code.as_str());
        assert!(answer.body.get("revision").is_none());
        assert!(!answer.text.contains("secret detail"), "the cause is for the log: {}", answer.text);
    }
}

#[tokio::test]
async fn a_stale_revision_is_answered_with_the_one_that_holds() {
    let api = Api::with_market(FakeMarket::failing(ErrorCode::RevisionConflict));
    let answer = api.post(&format!("{FEEDS}:install"), mutation()).await;
    answer.refused(409, "connector_market_revision_conflict");
    assert_eq!((&answer.body["revision"], &answer.body["retryable"]), (&json!(5), &json!(true)));
    let refresh = json!({ "clientRequestId": "two", "expectedRevision": 1 });
    let answer = api.post("/v1/connector-market:refresh", refresh).await;
    answer.refused(409, "connector_market_revision_conflict");
    assert_eq!(answer.body.get("revision"), None::<&Value>);
}
