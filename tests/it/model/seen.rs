//! What the database holds, and what must hold of it whatever happened: on every
//! reading by itself, and from one reading to the next.

use std::collections::{BTreeMap, BTreeSet};

use portcullis::{
    domain::{
        authorization::AuthorizationProjection,
        catalog::CatalogState,
        connector::Connector,
        convergence::Convergence,
        event::OutboxEvent,
        id::{AccountId, ConnectorKey, OperationId},
        installation::Installation,
        operation::{Operation, OperationKind, OperationState},
        revision::Revision,
        snapshot::Snapshot,
    },
    ports::Store,
};

use super::{
    device::{Device, LINK, SECRET, key_of, scope},
    step::{ACCOUNTS, KEYS},
};

/// A node, an account (none when signed out) and a connector.
pub(crate) type Place = (usize, Option<AccountId>, ConnectorKey);

/// One reading of everything.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) snapshot: Snapshot,
    /// Every operation, private ones while they are active.
    pub(crate) operations: BTreeMap<OperationId, Operation>,
    pub(crate) projections: BTreeMap<(AccountId, ConnectorKey), AuthorizationProjection>,
    pub(crate) convergences: BTreeMap<Place, Convergence>,
}

impl Seen {
    pub(crate) async fn read(device: &Device) -> Self {
        let snapshot = device.stores[0].snapshot().await.expect("a snapshot");
        let active = device.stores[0].recoverable_operations().await.expect("operations");
        let operations = snapshot
            .operations
            .iter()
            .cloned()
            .chain(active)
            .map(|operation| (operation.operation_id.clone(), operation))
            .collect();
        let (mut projections, mut convergences) = (BTreeMap::new(), BTreeMap::new());
        for by in 0..ACCOUNTS {
            let scope = scope(by);
            for (node, store) in device.stores.iter().enumerate() {
                let read = store.scoped_snapshot(&scope).await.expect("a scoped snapshot");
                for row in read.convergences {
                    let key = row.desired.connector_key.clone();
                    convergences.insert((node, scope.account_id.clone(), key), row);
                }
                for projection in read.projections {
                    let place = (projection.account_id.clone(), projection.connector_key.clone());
                    projections.insert(place, projection);
                }
            }
        }
        Self { snapshot, operations, projections, convergences }
    }

    pub(crate) fn connector(&self, key: usize) -> Option<&Connector> {
        let key = key_of(key);
        self.snapshot.connectors.iter().find(|connector| connector.key == key)
    }

    pub(crate) fn active(&self) -> Vec<Operation> {
        self.operations.values().filter(|operation| operation.is_active()).cloned().collect()
    }

    /// The active operation of a connector, or of the catalog.
    pub(crate) fn lane(&self, key: Option<&ConnectorKey>) -> Option<&Operation> {
        self.operations
            .values()
            .find(|operation| operation.is_active() && operation.connector_key.as_ref() == key)
    }

    /// As a reader would have it, without who works on what.
    pub(crate) fn public(&self) -> Self {
        let mut seen = self.clone();
        seen.snapshot.event_cursor = 0;
        seen.snapshot.operations.clear();
        for operation in seen.operations.values_mut() {
            operation.lease = None;
            operation.lease_token = Default::default();
        }
        for row in seen.convergences.values_mut() {
            row.lease = None;
            row.lease_token = Default::default();
        }
        seen
    }

    /// What holds of one reading.
    pub(crate) async fn check(&self, device: &Device) {
        let mut lanes = BTreeSet::new();
        for operation in self.active() {
            assert!(
                lanes.insert(operation.connector_key.clone()),
                "two active operations in the lane of {:?}",
                operation.connector_key
            );
        }
        let refreshing = self.snapshot.catalog_state == CatalogState::Refreshing;
        assert_eq!(refreshing, self.lane(None).is_some(), "the catalog's state and its lane disagree");
        for connector in &self.snapshot.connectors {
            let key = &connector.key;
            assert!(connector.revision <= self.snapshot.revision, "{key} is ahead of the market");
            let lane = self.lane(Some(key)).map(|operation| operation.kind);
            let name = connector.installation.name();
            match &connector.installation {
                Installation::Installing { .. } | Installation::Updating { .. } => {
                    assert_eq!(lane, Some(OperationKind::Install), "{key} is {name} and nobody does it");
                }
                Installation::Uninstalling { .. } => {
                    assert_eq!(lane, Some(OperationKind::Uninstall), "{key} is {name} and nobody does it");
                }
                _ => assert!(
                    !matches!(lane, Some(OperationKind::Install | OperationKind::Uninstall)),
                    "{key} is {name} while {lane:?} holds its lane"
                ),
            }
            let installed = connector.installation.installed().map(|one| &one.identity);
            for digest in installed.into_iter().chain(connector.installation.candidate()) {
                let digest = &digest.release_digest;
                let evidence = device.stores[0].installed_release(key, digest).await.expect("a reading");
                assert!(evidence.is_some(), "{key} is {name} without evidence of {digest}");
            }
            if let Some(identity) = installed {
                assert!(
                    device.commits(&identity.release_digest) > 0,
                    "{key} {} is called installed, and no installer committed it",
                    identity.version
                );
            }
        }
        let text = format!("{self:?}");
        assert!(!text.contains(SECRET) && !text.contains(LINK), "a secret or a link was stored: {text}");
    }

    /// What holds from `before` to this reading, with the events of between.
    pub(crate) fn follows(&self, before: &Self, events: &[OutboxEvent]) {
        assert!(self.snapshot.revision >= before.snapshot.revision, "the revision went back");
        let mut last = before.snapshot.revision;
        for event in events {
            assert!(event.revision >= last, "the events' revisions go back: {events:?}");
            assert!(event.revision <= self.snapshot.revision, "an event is ahead of the market");
            last = event.revision;
        }
        let told = |key: &ConnectorKey, revision: Option<Revision>| {
            events.iter().any(|event| {
                event.connector_key.as_ref().is_none_or(|about| about == key)
                    && revision.is_none_or(|revision| event.revision == revision)
            })
        };
        for connector in &self.snapshot.connectors {
            let earlier = before.snapshot.connectors.iter().find(|earlier| earlier.key == connector.key);
            if earlier == Some(connector) {
                continue;
            }
            let (key, revision) = (&connector.key, connector.revision);
            assert!(
                earlier.is_none_or(|earlier| revision > earlier.revision),
                "{key} changed and kept its revision: {earlier:?} {connector:?}"
            );
            assert!(told(key, Some(revision)), "{key} changed at {revision} and nobody was told");
        }
        for connector in &before.snapshot.connectors {
            let gone = !self.snapshot.connectors.iter().any(|later| later.key == connector.key);
            assert!(!gone || told(&connector.key, None), "{} is gone and nobody was told", connector.key);
        }
        for (id, operation) in &self.operations {
            self.operation_follows(before.operations.get(id), operation, events);
        }
        for (place, projection) in &self.projections {
            let earlier = before.projections.get(place);
            if earlier.is_none_or(|earlier| earlier.differs_publicly(projection)) {
                assert!(told(&place.1, None), "the authorization of {place:?} changed and nobody was told");
            }
        }
        for (place, row) in &self.convergences {
            let earlier = before.convergences.get(place);
            let same = earlier.is_some_and(|earlier| {
                earlier.desired == row.desired
                    && earlier.observed == row.observed
                    && earlier.last_error == row.last_error
            });
            assert!(same || told(&place.2, None), "the runtime of {place:?} changed and nobody was told");
            if let Some(earlier) = earlier {
                assert!(
                    row.desired.generation >= earlier.desired.generation,
                    "the generation of {place:?} went back"
                );
                assert!(row.lease_token >= earlier.lease_token, "the lease token of {place:?} went back");
            }
        }
    }

    fn operation_follows(&self, earlier: Option<&Operation>, operation: &Operation, events: &[OutboxEvent]) {
        let id = &operation.operation_id;
        let shown = |operation: &Operation| (operation.state.clone(), operation.stage, operation.attempt);
        if earlier.map(shown) != Some(shown(operation)) {
            let told = events.iter().any(|event| match &operation.owner_account_id {
                Some(owner) if operation.kind != OperationKind::ReconcileRuntime => {
                    event.operation_id.as_ref() == Some(id) && event.owner_account_id.as_ref() == Some(owner)
                }
                _ => event.connector_key == operation.connector_key,
            });
            assert!(told, "operation {id} changed and its owner was not told: {operation:?} {events:?}");
        }
        let Some(earlier) = earlier else { return };
        assert!(operation.lease_token >= earlier.lease_token, "the lease token of {id} went back");
        assert!(operation.attempt >= earlier.attempt, "{id} lost an attempt");
        if !earlier.is_active() {
            assert_eq!(operation.state, earlier.state, "{id} had ended and did so again");
        }
        let session = earlier.execution.authorization_session.as_ref();
        if let Some(session) = session {
            let later = operation.execution.authorization_session.as_ref();
            assert!(
                later.is_some_and(|later| later.step_revision >= session.step_revision),
                "the attempt of {id} went back a step"
            );
            assert!(
                !session.is_resolved() || later == Some(session),
                "the attempt of {id} had ended and changed"
            );
            assert!(
                !session.is_canceling()
                    || later.is_some_and(|later| later.is_canceling() || later.is_resolved()),
                "{id} is not being cancelled any more"
            );
        }
    }

    /// Why an operation is as it is, for a failed expectation.
    pub(crate) fn describe(&self, id: &OperationId) -> String {
        format!("{:#?}", self.operations.get(id))
    }
}

/// Everything that was told since the last reading, and was not told before.
pub(crate) async fn news(store: &dyn Store, cursor: &mut i64) -> Vec<OutboxEvent> {
    let mut news = Vec::new();
    loop {
        let events = store.pending_events(500).await.expect("events");
        if events.is_empty() {
            return news;
        }
        for event in events {
            assert!(event.sequence > *cursor, "sequence {} came before", event.sequence);
            *cursor = event.sequence;
            let text = serde_json::to_string(&event).expect("JSON");
            assert!(!text.contains(SECRET) && !text.contains(LINK), "a secret in an event: {text}");
            store.mark_published(event.sequence).await.expect("a note");
            news.push(event);
        }
    }
}

/// Whether an operation ended in success.
pub(crate) fn completed(operation: &Operation) -> bool {
    operation.state == OperationState::Completed
}

/// Whether it ended without.
pub(crate) fn failed(operation: &Operation) -> bool {
    matches!(operation.state, OperationState::Failed { .. })
}

/// All keys, as indexes.
pub(crate) fn keys() -> std::ops::Range<usize> {
    0..KEYS.len()
}
