//! Installation and authorization as state machines (J.10, 220 to 223).

use portcullis::domain::{
    authorization::AuthorizationState,
    digest::Sha256Digest,
    error::ErrorCode,
    installation::{FailureCode, Installation, InstalledRelease, ReleaseIdentity},
    timestamp::Timestamp,
};

fn release(version: &str) -> ReleaseIdentity {
    ReleaseIdentity {
        version: version.parse().expect("a version"),
        release_id: format!("echo@{version}").parse().expect("a release id"),
        release_digest: Sha256Digest::of(version.as_bytes()),
    }
}

fn installed(version: &str) -> InstalledRelease {
    InstalledRelease { identity: release(version), installed_at: Timestamp(1) }
}

#[test]
fn s220_not_installed_cannot_be_promoted() {
    let refused = Installation::NotInstalled.promote(&release("1.0.0").release_digest, Timestamp(2));
    assert_eq!(refused.expect_err("nothing to promote").code, ErrorCode::RevisionConflict);
}

#[test]
fn s221_installing_becomes_installed_with_its_candidate() {
    let state = Installation::NotInstalled
        .begin_install()
        .and_then(|state| state.with_candidate(release("1.0.0")))
        .and_then(|state| state.promote(&release("1.0.0").release_digest, Timestamp(7)))
        .expect("the ordinary way");
    let expected = InstalledRelease { identity: release("1.0.0"), installed_at: Timestamp(7) };
    assert_eq!(state, Installation::Installed { installed: expected, failure_code: None });
}

#[test]
fn another_candidate_is_not_promoted() {
    let state = Installation::Updating { installed: installed("1.0.0"), candidate: Some(release("2.0.0")) };
    let refused = state.promote(&release("3.0.0").release_digest, Timestamp(7));
    assert_eq!(refused.expect_err("another candidate").code, ErrorCode::RevisionConflict);
}

#[test]
fn s222_s223_authorization_moves_as_the_table_says() {
    use AuthorizationState::{Connected, Disconnected, Expired, Failed, NotRequired, Pending};
    let states = [NotRequired, Disconnected, Pending, Connected, Expired, Failed];
    let legal = [
        (Disconnected, vec![Pending]),
        (Pending, vec![Pending, Connected, Disconnected, Failed]),
        (Connected, vec![Disconnected, Expired, Failed]),
        (Expired, vec![Pending, Disconnected]),
        (Failed, vec![Pending, Disconnected]),
        (NotRequired, vec![]),
    ];
    for (from, allowed) in legal {
        for to in states {
            assert_eq!(from.may_become(to), allowed.contains(&to), "{from:?} to {to:?}");
        }
    }
}

#[test]
fn an_update_keeps_what_is_installed_and_returns_to_it_when_it_fails() {
    let state = Installation::Installed { installed: installed("1.0.0"), failure_code: None };
    let updating =
        state.begin_install().and_then(|state| state.with_candidate(release("2.0.0"))).expect("an update");
    assert_eq!(updating.installed(), Some(&installed("1.0.0")));
    assert!(updating.targets(&release("2.0.0").release_digest));
    let failed = updating.fail_install(ErrorCode::InstallFailed.into());
    let code = FailureCode::from(ErrorCode::InstallFailed);
    assert_eq!(failed, Installation::Installed { installed: installed("1.0.0"), failure_code: Some(code) });
}

#[test]
fn a_first_installation_that_fails_is_failed_without_evidence() {
    let state = Installation::NotInstalled.begin_install().expect("a first installation");
    let failed = state.fail_install(ErrorCode::InstallFailed.into());
    assert!(matches!(failed, Installation::Failed { installed: None, .. }));
}

#[test]
fn a_row_that_needs_physical_repair_forgets_its_evidence() {
    for code in [FailureCode::PHYSICALLY_ABSENT, FailureCode::PHYSICALLY_INVALID] {
        let failed = Installation::Failed {
            failure_code: FailureCode(code.into()),
            installed: Some(installed("1.0.0")),
        };
        assert!(!failed.has_installed_artifact());
        assert_eq!(
            failed.begin_install().expect("a repair"),
            Installation::Installing { installed: None, candidate: None }
        );
    }
}

#[test]
fn what_is_under_way_refuses_a_second_command() {
    let busy = [
        Installation::Installing { installed: None, candidate: None },
        Installation::Updating { installed: installed("1.0.0"), candidate: None },
        Installation::Uninstalling { installed: installed("1.0.0") },
    ];
    for state in busy {
        let install = state.clone().begin_install().expect_err("busy");
        assert_eq!((install.code, install.retryable), (ErrorCode::OperationInProgress, true));
        assert_eq!(state.begin_uninstall().expect_err("busy").code, ErrorCode::OperationInProgress);
    }
    let nothing = Installation::NotInstalled.begin_uninstall().expect_err("nothing is installed");
    assert_eq!(nothing.code, ErrorCode::OperationInProgress);
}

#[test]
fn a_failed_removal_keeps_its_evidence_and_can_be_repeated() {
    let failed = Installation::Uninstalling { installed: installed("1.0.0") }
        .fail_uninstall(ErrorCode::InstallFailed.into());
    assert_eq!(failed.installed(), Some(&installed("1.0.0")));
    let again = failed.begin_uninstall().expect("it can be repeated");
    let done = again.finish_uninstall(&release("1.0.0").release_digest).expect("done");
    assert_eq!(done, Installation::NotInstalled);
}

#[test]
fn every_state_survives_its_json_form() {
    let states = [
        Installation::NotInstalled,
        Installation::Installing { installed: None, candidate: Some(release("1.0.0")) },
        Installation::Installed {
            installed: installed("1.0.0"),
            failure_code: Some(FailureCode("x".into())),
        },
        Installation::Updating { installed: installed("1.0.0"), candidate: None },
        Installation::Uninstalling { installed: installed("1.0.0") },
        Installation::Failed { failure_code: FailureCode("x".into()), installed: Some(installed("1.0.0")) },
    ];
    for state in states {
        let json = serde_json::to_value(&state).expect("it has a JSON form");
        assert_eq!(json["state"], state.name());
        assert_eq!(serde_json::from_value::<Installation>(json).expect("and reads it back"), state);
    }
}
