//! Every refusal of every command, and that it changes nothing: no row, no revision,
//! no event, no hint (spec C.5 to C.11).

use std::sync::atomic::Ordering;

use portcullis::{
    domain::{
        authorization::AuthorizationState,
        error::{Error, ErrorCode},
        installation::{FailureCode, Installation},
        operation::{OperationKind, OperationScope, OperationState},
        revision::Revision,
    },
    market::{Application, ApplicationConfig, ConnectorMutation, authorize::BeginAuthorization},
    ports::ReplacementPolicy,
};

use super::{
    fakes::Fault,
    provider::{held, installed, local, remote},
    world::{World, ada, broken, key, release},
};

/// The commands about a connector.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Command {
    Install,
    Uninstall,
    Switch,
    Reconcile,
    Begin,
    Disconnect,
}

const ALL: [Command; 6] = [
    Command::Install,
    Command::Uninstall,
    Command::Switch,
    Command::Reconcile,
    Command::Begin,
    Command::Disconnect,
];
/// Those that leave an operation to be executed.
const SCHEDULED: [Command; 4] =
    [Command::Install, Command::Uninstall, Command::Reconcile, Command::Disconnect];

impl Command {
    async fn send(self, world: &World, command: ConnectorMutation) -> Result<(), Error> {
        let app = &world.app;
        match self {
            Self::Install => app.install(command).await.map(drop),
            Self::Uninstall => app.uninstall(command).await.map(drop),
            Self::Switch => app.set_runtime_enabled(command, false).await.map(drop),
            Self::Reconcile => app.accept_reconcile(command).await.map(drop),
            Self::Disconnect => app.disconnect_authorization(command).await.map(drop),
            Self::Begin => {
                let begin = BeginAuthorization {
                    command,
                    replacement: ReplacementPolicy::Keep,
                    after_step: 0,
                    secret: None,
                };
                app.begin_authorization(begin).await.map(drop)
            }
        }
    }

    async fn refused(self, world: &World, command: ConnectorMutation, code: ErrorCode, retryable: bool) {
        let error = world.refused(self.send(world, command), code, retryable).await;
        assert!(!error.message.is_empty(), "{self:?}");
    }
}

async fn an_unknown_connector_is_not_found_by_any_command() {
    let world = World::with_echo().await;
    let unknown = key("unknown");
    for command in ALL {
        let sent = world.command("one", "unknown").await;
        command.refused(&world, sent, ErrorCode::NotFound, false).await;
    }
    let (app, scope) = (&world.app, ada());
    world.refused(app.ensure_reconcile(&scope, &unknown), ErrorCode::NotFound, false).await;
    world.refused(app.calibrate(&unknown), ErrorCode::NotFound, false).await;
    world.refused(app.prepare_runtime(&scope, &unknown), ErrorCode::NotFound, false).await;
    world.refused(app.cancel_authorization(&scope, &unknown), ErrorCode::NotFound, false).await;
    let held = held("unknown", AuthorizationState::Connected, Some("one"));
    world.refused(app.observe_authorization(&held), ErrorCode::NotFound, false).await;
    world.refused(app.connector(&unknown), ErrorCode::NotFound, false).await;
    world.refused(app.connector_view(&scope, &unknown), ErrorCode::NotFound, false).await;
}

async fn a_revision_that_is_not_the_current_one_is_refused_by_every_command() {
    let world = installed().await;
    let (global, own) = (world.revision().await.0, world.stored("mail").await.revision.0);
    for command in ALL {
        for wrong in [global - 1, global + 1] {
            let mut sent = world.command("one", "mail").await;
            sent.mutation.expected_revision = Revision(wrong);
            command.refused(&world, sent.clone(), ErrorCode::RevisionConflict, true).await;
        }
        for wrong in [own - 1, own + 1] {
            let mut sent = world.command("one", "mail").await;
            sent.expected_connector_revision = Some(Revision(wrong));
            command.refused(&world, sent, ErrorCode::RevisionConflict, true).await;
        }
    }
    for wrong in [global - 1, global + 1] {
        let mut sent = world.mutation("one").await;
        sent.expected_revision = Revision(wrong);
        world.refused(world.app.refresh_catalog(sent), ErrorCode::RevisionConflict, true).await;
    }
}

async fn a_busy_lane_is_refused_by_every_command() {
    for busy in SCHEDULED {
        let world = installed().await;
        world.offer(&[local("mail", "2.0.0"), remote("cloud", "1.0.0")]).await;
        let sent = world.command("busy", "mail").await;
        busy.send(&world, sent).await.expect("accepted");
        for command in ALL {
            // What is installed and at rest may be switched while it is worked on.
            if command == Command::Switch && matches!(busy, Command::Reconcile | Command::Disconnect) {
                continue;
            }
            let sent = world.command("one", "mail").await;
            command.refused(&world, sent, ErrorCode::OperationInProgress, true).await;
        }
        let (scope, mail) = (ada(), key("mail"));
        if busy != Command::Reconcile {
            let ensured = world.app.ensure_reconcile(&scope, &mail);
            world.refused(ensured, ErrorCode::OperationInProgress, true).await;
        }
    }
}

async fn a_request_id_of_another_command_is_refused_by_every_command() {
    for first in SCHEDULED {
        let world = installed().await;
        let sent = world.command("one", "mail").await;
        first.send(&world, sent).await.expect("accepted");
        for command in ALL.into_iter().filter(|command| *command != Command::Switch) {
            if command != first {
                let sent = world.command("one", "mail").await;
                command.refused(&world, sent, ErrorCode::InvalidRequest, false).await;
            }
            let sent = world.command("one", "cloud").await;
            command.refused(&world, sent, ErrorCode::InvalidRequest, false).await;
        }
        let sent = world.mutation("one").await;
        world.refused(world.app.refresh_catalog(sent), ErrorCode::InvalidRequest, false).await;
    }
    let world = installed().await;
    world.app.refresh_catalog(world.mutation("one").await).await.expect("accepted");
    for command in ALL.into_iter().filter(|command| *command != Command::Switch) {
        let sent = world.command("one", "mail").await;
        command.refused(&world, sent, ErrorCode::InvalidRequest, false).await;
    }
}

async fn what_is_not_installed_is_refused_by_what_needs_it() {
    let world = World::new().await;
    world.offer(&[release("echo", "1.0.0")]).await;
    let failed =
        Installation::Failed { failure_code: FailureCode::from(ErrorCode::InstallFailed), installed: None };
    for installation in [Installation::NotInstalled, failed] {
        let mut connector = world.stored("echo").await;
        connector.installation = installation;
        world.save(connector).await;
        for command in [Command::Uninstall, Command::Switch, Command::Reconcile] {
            let sent = world.command("one", "echo").await;
            command.refused(&world, sent, ErrorCode::OperationInProgress, true).await;
        }
        let (scope, echo) = (ada(), key("echo"));
        let ensured = world.app.ensure_reconcile(&scope, &echo);
        world.refused(ensured, ErrorCode::OperationInProgress, true).await;
    }
}

async fn what_is_under_way_is_begun_by_no_second_command() {
    let world = World::with_echo().await;
    let installed = world.stored("echo").await.installation.installed().expect("installed").clone();
    let under_way = [
        Installation::Installing { installed: None, candidate: None },
        Installation::Updating { installed: installed.clone(), candidate: None },
        Installation::Uninstalling { installed },
    ];
    for installation in under_way {
        let mut connector = world.stored("echo").await;
        connector.installation = installation;
        world.save(connector).await;
        for command in [Command::Install, Command::Uninstall, Command::Switch, Command::Reconcile] {
            let sent = world.command("one", "echo").await;
            command.refused(&world, sent, ErrorCode::OperationInProgress, true).await;
        }
    }
}

async fn what_needs_no_authorization_is_not_authorized_and_a_remote_needs_an_account() {
    let world = World::with_echo().await;
    for command in [Command::Begin, Command::Disconnect] {
        let sent = world.command("one", "echo").await;
        command.refused(&world, sent, ErrorCode::OperationInProgress, true).await;
    }
    let world = installed().await;
    for command in [Command::Begin, Command::Disconnect] {
        let mut sent = world.command("one", "cloud").await;
        sent.mutation.scope = OperationScope::default();
        command.refused(&world, sent, ErrorCode::InvalidRequest, false).await;
    }
    let mut begin = world.begin("one", "mail").await;
    begin.after_step = 1;
    world.refused(world.authorize(begin), ErrorCode::InvalidRequest, false).await;
}

async fn what_the_catalog_withdrew_is_not_installed() {
    let world = World::with_echo().await;
    world.offer(&[]).await;
    let sent = world.command("one", "echo").await;
    Command::Install.refused(&world, sent, ErrorCode::Incompatible, false).await;
}

async fn without_a_fresh_id_every_command_is_refused() {
    let world = installed().await;
    for command in
        [Command::Install, Command::Uninstall, Command::Reconcile, Command::Begin, Command::Disconnect]
    {
        world.ids.faults.push(Fault::of(ErrorCode::Unavailable));
        let sent = world.command("one", "mail").await;
        command.refused(&world, sent, ErrorCode::Unavailable, true).await;
    }
    let (scope, mail) = (ada(), key("mail"));
    world.ids.faults.push(Fault::of(ErrorCode::Unavailable));
    world.refused(world.app.ensure_reconcile(&scope, &mail), ErrorCode::Unavailable, true).await;
    world.ids.faults.push(Fault::of(ErrorCode::Unavailable));
    let sent = world.mutation("one").await;
    world.refused(world.app.refresh_catalog(sent), ErrorCode::Unavailable, true).await;
}

async fn without_a_scheduler_every_command_is_stored_all_the_same() {
    for command in SCHEDULED {
        let world = installed().await;
        world.scheduler.faults.push(Fault::of(ErrorCode::Unavailable));
        let (sent, hints) = (world.command("one", "mail").await, world.scheduler.count());
        let error = command.send(&world, sent.clone()).await.expect_err("no hint");
        assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true), "{command:?}");
        let waiting = world.app.recoverable_operations().await.expect("operations");
        assert_eq!(waiting.len(), 1, "{command:?}");
        assert_eq!(waiting[0].state, OperationState::Accepted);
        assert_eq!(waiting[0].client_request_id.as_str(), "one");
        assert_eq!(world.scheduler.count(), hints);
        let revision = world.revision().await;
        command.send(&world, sent).await.expect("the same again schedules it");
        assert_eq!(*world.scheduler.scheduled.lock().last().expect("a hint"), waiting[0].operation_id);
        assert_eq!(world.revision().await, revision);
    }
    let world = World::new().await;
    world.scheduler.faults.push(Fault::of(ErrorCode::Unavailable));
    let error = world.app.refresh_catalog(world.mutation("one").await).await.expect_err("no hint");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true));
    let waiting = world.app.recoverable_operations().await.expect("operations");
    assert_eq!((waiting.len(), waiting[0].kind), (1, OperationKind::RefreshCatalog));
}

async fn a_kind_that_is_not_run_here_any_more_is_not_put_in_place() {
    let mut world = World::with_remote().await;
    world.offer(&[remote("cloud", "1.0.0")]).await;
    let accepted = world.accept_install("cloud").await;
    world.runs_remote.store(false, Ordering::SeqCst);
    world.reboot();
    let error = world.run(&accepted).await.expect_err("a refusal");
    assert_eq!((error.code, error.retryable), (ErrorCode::UnsupportedImplementation, false));
    let OperationState::Failed { failure_code, failure } = world.operation(&accepted).await.state else {
        panic!("it should have ended")
    };
    assert_eq!(
        (failure_code, failure.code),
        (ErrorCode::InstallFailed, ErrorCode::UnsupportedImplementation)
    );
    assert!(world.installer.installs.lock().is_empty());
    assert_eq!(world.host.count(), 0);
}

async fn a_frozen_release_that_does_not_hold_is_not_put_in_place() {
    let world = World::new().await;
    world.offer(&[release("echo", "1.0.0")]).await;
    let mut operation = world.accept_install("echo").await.operation;
    let mut wrong = broken("echo");
    let target = operation.target.as_mut().expect("a target");
    wrong.release_digest = target.identity.release_digest;
    target.release = Some(Box::new(wrong));
    world.write(async |tx| tx.save_operation(&operation).await).await;
    let error = world.app.execute(&operation.operation_id).await.expect_err("a refusal");
    assert_eq!((error.code, error.retryable), (ErrorCode::InvalidManifest, false));
    assert!(world.installer.installs.lock().is_empty());
    assert_eq!(world.stored("echo").await.installation.name(), "failed");
}

async fn an_unknown_operation_is_neither_found_nor_executed() {
    let world = World::with_echo().await;
    let unknown = "unknown".parse().expect("an id");
    world.refused(world.app.operation(&ada(), &unknown), ErrorCode::NotFound, false).await;
    let before = world.state().await;
    world.app.execute(&unknown).await.expect("nothing to do");
    assert_eq!(world.state().await, before);
}

async fn a_lease_that_cannot_be_renewed_and_a_host_without_a_name_are_refused() {
    let world = World::new().await;
    let spoilers: [fn(&mut ApplicationConfig); 3] = [
        |config| config.lease_duration = std::time::Duration::from_millis(29),
        |config| config.identity.product = " ".into(),
        |config| config.identity.platform = String::new(),
    ];
    for spoil in spoilers {
        let mut config = world.config();
        spoil(&mut config);
        let error = Application::new(config).expect_err("a refusal");
        assert_eq!((error.code, error.retryable), (ErrorCode::InvalidRequest, false));
    }
}

on_every_store! {
    an_unknown_connector_is_not_found_by_any_command,
    a_revision_that_is_not_the_current_one_is_refused_by_every_command,
    a_busy_lane_is_refused_by_every_command,
    a_request_id_of_another_command_is_refused_by_every_command,
    what_is_not_installed_is_refused_by_what_needs_it,
    what_is_under_way_is_begun_by_no_second_command,
    what_needs_no_authorization_is_not_authorized_and_a_remote_needs_an_account,
    what_the_catalog_withdrew_is_not_installed,
    without_a_fresh_id_every_command_is_refused,
    without_a_scheduler_every_command_is_stored_all_the_same,
    a_kind_that_is_not_run_here_any_more_is_not_put_in_place,
    a_frozen_release_that_does_not_hold_is_not_put_in_place,
    an_unknown_operation_is_neither_found_nor_executed,
    a_lease_that_cannot_be_renewed_and_a_host_without_a_name_are_refused,
}
