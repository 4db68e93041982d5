//! Small values: what parses, what does not, what compares how.

use portcullis::domain::{
    error::{Error, ErrorCode},
    generation::Generation,
    id::{CapabilityId, ConnectionId, ConnectorKey},
    operation::OperationFailure,
    timestamp::Timestamp,
};

fn generation(epoch: &str, number: u64) -> Generation {
    Generation { boot_epoch: epoch.parse().expect("an epoch"), number }
}

#[test]
fn a_connector_key_follows_its_form() {
    let longest = "a".repeat(128);
    for good in ["a", "0", "a.b_c-d", "wecom-cli", &longest] {
        ConnectorKey::parse(good).expect(good);
    }
    let too_long = "a".repeat(129);
    for bad in ["", "A", "-a", "a-", ".a", "a b", "a/b", "ä", &too_long] {
        assert_eq!(ConnectorKey::parse(bad).expect_err(bad).code, ErrorCode::InvalidRequest);
    }
}

#[test]
fn a_capability_id_splits_at_its_last_dot() {
    let id: CapabilityId = "org.example.feeds.read".parse().expect("a capability id");
    assert_eq!((id.connector.as_str(), id.name.as_str()), ("org.example.feeds", "read"));
    assert_eq!(id.to_string(), "org.example.feeds.read");
    for bad in ["", "read", ".read", "feeds.", "feeds.Read"] {
        assert!(bad.parse::<CapabilityId>().is_err(), "{bad:?}");
    }
}

#[test]
fn connection_ids_are_stable_and_tell_accounts_apart() {
    let key = ConnectorKey::parse("echo").expect("a key");
    assert_eq!(ConnectionId::device(&key).as_str(), "device-echo");
    let one = ConnectionId::account(Some(&"one".parse().expect("an account")), &key);
    let two = ConnectionId::account(Some(&"two".parse().expect("an account")), &key);
    let nobody = ConnectionId::account(None, &key);
    assert!(one != two && two != nobody && one != nobody);
    assert_eq!(one.as_str().len(), "account-".len() + 32);
}

#[test]
fn a_fence_refuses_its_own_epoch_up_to_itself_and_nothing_else() {
    let fence = generation("a", 5);
    assert!(fence.fences(&generation("a", 4)) && fence.fences(&generation("a", 5)));
    assert!(!fence.fences(&generation("a", 6)) && !fence.fences(&generation("b", 1)));
}

#[test]
fn an_active_route_admits_its_own_epoch_from_itself_on_and_nothing_else() {
    let active = generation("a", 5);
    assert!(active.admits(&generation("a", 5)) && active.admits(&generation("a", 6)));
    assert!(!active.admits(&generation("a", 4)) && !active.admits(&generation("b", 9)));
}

#[test]
fn a_fence_only_advances() {
    let fence = generation("a", 5);
    assert_eq!(fence.clone().advanced_to(generation("a", 3)), fence);
    assert_eq!(fence.clone().advanced_to(generation("a", 7)), generation("a", 7));
    assert_eq!(fence.advanced_to(generation("b", 1)), generation("b", 1));
}

#[test]
fn a_timestamp_is_rfc_3339_in_utc_to_the_millisecond() {
    let moment = Timestamp(1_780_000_000_123);
    let text = moment.to_string();
    assert!(text.ends_with('Z') && text.contains(".123"), "{text}");
    assert_eq!(Timestamp::parse_rfc3339(&text).expect("its own form"), moment);
    assert_eq!(Timestamp::parse_rfc3339("1970-01-01T01:00:00+01:00").expect("an offset"), Timestamp(0));
    assert!(Timestamp::parse_rfc3339("yesterday").is_err());
}

#[test]
fn error_codes_are_unique_lower_case_words() {
    let mut names: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for code in ErrorCode::ALL {
        assert_eq!(serde_json::to_value(code).expect("a JSON form"), code.as_str());
    }
}

#[test]
fn a_failure_shows_the_most_specific_error_and_bounds_its_text() {
    let cause = Error::new(ErrorCode::ArtifactDigestMismatch, "ä".repeat(2_000));
    let outer = Error::new(ErrorCode::InstallFailed, "the release could not be installed").with_cause(cause);
    let failure = OperationFailure::of(&outer);
    assert_eq!(failure.code, ErrorCode::ArtifactDigestMismatch);
    assert!(failure.message.len() <= 1_024 && failure.message.starts_with('ä'));
    assert!(outer.find(ErrorCode::ArtifactDigestMismatch).is_some());
    assert_eq!(
        outer.to_string(),
        "the release could not be installed",
        "the message does not repeat its cause"
    );
}
