//! How a worker starts, what the catalog offers it, and what accounts hold.

use std::collections::BTreeMap;

use async_trait::async_trait;
use portcullis::domain::{authorization::AuthorizationSnapshot, id::AccountId};
use portcullis::ports::AuthorizationSource;

use std::{sync::Arc, time::Duration};

use portcullis::{
    domain::{
        error::Error,
        id::{BootEpoch, WorkerId},
        manifest::ImplementationKind,
        release::Release,
    },
    market::{Application, ApplicationConfig, HostIdentity, ImplementationRegistry},
    ports::Store,
};
use serde_json::json;

use super::{
    device::Worker,
    mortal::Mortal,
    step::{KEYS, Offer},
};
use crate::market::fakes::Shared;
use crate::market::{
    fakes::{FakeClock, Fakes},
    world::altered,
};

/// What accounts hold elsewhere.
#[derive(Default)]
pub(crate) struct Truths {
    pub(crate) told: Shared<BTreeMap<AccountId, AuthorizationSnapshot>>,
    pub(super) faults: crate::market::fakes::Script,
}

#[async_trait]
impl AuthorizationSource for Truths {
    async fn snapshot(&self, account: &AccountId) -> Result<AuthorizationSnapshot, Error> {
        self.faults.next()?;
        let truth = self.told.lock().get(account).cloned();
        Ok(truth.unwrap_or(AuthorizationSnapshot { revision: 0, projections: Vec::new() }))
    }
}

/// Starts a worker.
pub(super) fn boot(
    who: usize,
    boots: u32,
    store: &Arc<dyn Store>,
    clock: &Arc<FakeClock>,
    truths: &Arc<Truths>,
) -> Worker {
    let boot_epoch: BootEpoch = format!("boot-{who}-{boots}").parse().expect("a boot epoch");
    let fakes = Fakes { clock: clock.clone(), ..Fakes::default() };
    let worker_id: WorkerId = format!("worker-{who}-{boots}").parse().expect("a worker id");
    let store = Mortal::new(store.clone(), clock.clone(), worker_id.clone(), boot_epoch.clone());
    let app = Application::new(ApplicationConfig {
        store: Arc::new(store.clone()),
        catalog: fakes.catalog.clone(),
        installer: fakes.installer.clone(),
        host: fakes.host.clone(),
        authorization: fakes.authorization.clone(),
        authorization_source: Some(truths.clone()),
        scheduler: fakes.scheduler.clone(),
        clock: clock.clone(),
        ids: Arc::new(Ids { prefix: format!("{who}-{boots}-"), fakes: fakes.ids.clone() }),
        registry: ImplementationRegistry::of([
            ImplementationKind::WasmComponent,
            ImplementationKind::RemoteStreamableHttp,
        ]),
        identity: HostIdentity {
            product: "portcullis".into(),
            platform: "linux-amd64".into(),
            version: "1.2.0".parse().expect("a version"),
        },
        worker_id,
        boot_epoch,
        lease_duration: Duration::ZERO,
    })
    .expect("an application");
    Worker { app, store, fakes }
}

/// Ids that no two boots share.
struct Ids {
    prefix: String,
    fakes: Arc<crate::market::fakes::FakeIds>,
}

impl portcullis::ports::IdSource for Ids {
    fn fresh(&self) -> Result<String, Error> {
        Ok(format!("{}{}", self.prefix, self.fakes.fresh()?))
    }
}

/// The release that an offer is about.
pub(super) fn release(index: usize, offer: &Offer) -> Option<Release> {
    let version = format!("{}.0.0", offer.version?);
    let needs = (KEYS[index] != "plain") != offer.other_kind;
    Some(altered(KEYS[index], &version, |manifest| {
        manifest["authorizationKind"] = if needs { "oauth2" } else { "none" }.into();
        if KEYS[index] == "remote" {
            manifest["requiredCapabilities"] = json!(["tools"]);
            manifest["implementation"] = json!({
                "kind": "remote_streamable_http",
                "endpoint": "https://mcp.example.org/mcp",
                "authentication": if needs { "connection" } else { "none" },
                "allowedHosts": ["mcp.example.org"]
            });
        }
        if offer.foreign {
            manifest["compatibility"] = json!({ "products": ["other"], "platforms": ["linux-amd64"] });
        }
    }))
}
