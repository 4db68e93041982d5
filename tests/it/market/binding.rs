//! On which connection a connector runs (J.7, as far as it applies without
//! accounts' authorizations).

use portcullis::domain::{authorization::AuthorizationState, id::ConnectionId, operation::OperationScope};

use super::world::{World, ada, altered, key, release};

async fn a_connector_that_needs_no_authorization_runs_on_the_devices_connection() {
    let world = World::with_echo().await;
    let request = world.host.last();
    assert_eq!(request.connection_id, ConnectionId::device(&key("echo")));
    assert_eq!((request.enabled, request.authorization), (true, AuthorizationState::NotRequired));
}

async fn it_runs_signed_out_too() {
    let world = World::new().await;
    world.offer(&[release("echo", "1.0.0")]).await;
    let mut command = world.command("one", "echo").await;
    command.mutation.scope = OperationScope::default();
    let accepted = world.app.install(command).await.expect("accepted");
    world.run(&accepted).await.expect("installed");
    let request = world.host.last();
    assert!(request.enabled);
    assert_eq!(request.scope, OperationScope::default());
}

async fn s130_a_connector_that_needs_one_is_inactive_on_the_accounts_connection() {
    for kind in ["oauth2", "api_key"] {
        let world = World::new().await;
        world
            .offer(&[altered("echo", "1.0.0", |manifest| manifest["authorizationKind"] = kind.into())])
            .await;
        world.install("echo").await;
        let request = world.host.last();
        let account = ada().account_id;
        assert_eq!(request.connection_id, ConnectionId::account(account.as_ref(), &key("echo")));
        assert_eq!((request.enabled, request.authorization), (false, AuthorizationState::Disconnected));
    }
}

async fn s131_signed_out_it_has_a_connection_of_its_own() {
    let world = World::new().await;
    world
        .offer(&[altered("echo", "1.0.0", |manifest| manifest["authorizationKind"] = "api_key".into())])
        .await;
    let mut command = world.command("one", "echo").await;
    command.mutation.scope = OperationScope::default();
    let accepted = world.app.install(command).await.expect("accepted");
    world.run(&accepted).await.expect("installed");
    let request = world.host.last();
    assert_eq!(request.connection_id, ConnectionId::account(None, &key("echo")));
    assert!(!request.enabled);
}

on_every_store! {
    a_connector_that_needs_no_authorization_runs_on_the_devices_connection,
    it_runs_signed_out_too,
    s130_a_connector_that_needs_one_is_inactive_on_the_accounts_connection,
    s131_signed_out_it_has_a_connection_of_its_own,
}
