//! The end of a case: everything heals.

use std::time::Duration;

use portcullis::{domain::installation::Installation, market::Selection};

use super::{
    case::Case,
    device::scope,
    expect::{self},
    step::ACCOUNTS,
};

impl Case {
    /// Nothing goes wrong any more, and time passes: everything ends well.
    pub(super) async fn heal(&mut self) {
        self.device.heal();
        self.device.restart(0);
        self.device.workers[1].store.kill();
        let app = self.device.workers[0].app.clone();
        for _ in 0..12 {
            self.device.clock.advance(Duration::from_secs(301));
            app.recover().await.expect("recovered");
            for operation in self.seen.active() {
                let _ = app.execute(&operation.operation_id).await;
            }
            self.look().await;
            if self.seen.active().is_empty() {
                break;
            }
        }
        assert!(self.seen.active().is_empty(), "these never end: {:#?}", self.seen.active());
        for by in 0..ACCOUNTS {
            if let Some(account) = scope(by).account_id {
                let truth = self.device.truths.told.lock().get(&account).cloned();
                if let Some(truth) = truth {
                    app.apply_authorizations(&account, &truth).await.expect("applied");
                }
                app.set_authorization_ready(&account, true);
            }
            let round = app.reconcile_authorizations(&scope(by)).await.expect("a round");
            assert!(round.failures.is_empty(), "{:?}", round.failures);
            for intent in &round.intents {
                app.reconcile_runtime(&scope(by), &intent.connector_key).await.expect("followed");
                app.resolve_authorization(intent).await.expect("resolved");
            }
            let failed = app.reconcile_installed(&scope(by), Selection::All).await.expect("a round");
            assert!(failed.is_empty(), "{failed:?}");
            self.look().await;
            self.all_is_well(by).await;
        }
        self.ledger.check(&self.seen);
        let mut tx = self.device.stores[0].begin().await.expect("a transaction");
        for ((owner, id), known) in self.ledger.entries() {
            let id = id.parse().expect("a request id");
            let found = tx.operation_by_client_request(owner.as_ref(), &id).await.expect("a reading");
            assert_eq!(found.map(|found| found.operation_id).as_ref(), Some(&known.operation_id));
        }
    }

    async fn all_is_well(&self, by: usize) {
        let account = scope(by).account_id;
        for connector in &self.seen.snapshot.connectors {
            let Installation::Installed { installed, .. } = &connector.installation else { continue };
            let (key, digest) = (&connector.key, &installed.identity.release_digest);
            let row = self.seen.convergences.get(&(0, account.clone(), key.clone()));
            let row = row.unwrap_or_else(|| panic!("{key} is installed and not planned"));
            assert!(row.is_converged(self.device.workers[0].app.boot_epoch()), "{row:?}");
            assert_eq!(row.desired.release_digest, *digest, "{key} runs another release");
            let release = self.device.stores[0].installed_release(key, digest).await.expect("a reading");
            let release = release.expect("evidence");
            let switch = row.desired.activation_enabled;
            let runs = expect::runs(&release, account.as_ref(), &self.seen, true, switch);
            assert_eq!(row.desired.enabled, runs, "{key} for {account:?}: {row:?}");
        }
    }
}
