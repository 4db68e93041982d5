//! What can happen, as values: a sequence of them is one case.

use proptest::{collection::vec, prelude::*};

use super::mortal::Blow;

/// Two workers on one database.
pub(crate) const WORKERS: usize = 2;
/// Two accounts, and nobody.
pub(crate) const ACCOUNTS: usize = 3;
/// One that needs no authorization, one that is authorized here, one elsewhere.
pub(crate) const KEYS: [&str; 3] = ["plain", "local", "remote"];

/// The revision that a command is sent with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rev {
    Global,
    Connector,
    Stale,
}

/// The client request id that a command is sent with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Fresh,
    /// The very command that used an id before, whatever else is said here.
    Again(usize),
    /// The id of an earlier command, for this one.
    Stolen(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Refresh,
    Install,
    Uninstall,
    Disconnect,
    Enable(bool),
    Begin { replace: bool, after_step: u64, connects: bool, with_secret: bool },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) verb: Verb,
    pub(crate) key: usize,
    pub(crate) by: usize,
    pub(crate) rev: Rev,
    pub(crate) id: Id,
}

/// What the catalog offers of one connector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// None takes it off the list.
    pub(crate) version: Option<u8>,
    /// Of another authorization kind than before.
    pub(crate) other_kind: bool,
    /// Not for this host.
    pub(crate) foreign: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Says {
    Pending,
    Connected,
    Failed,
    Superseded,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Command(Command),
    /// Changes the catalog behind everyone's back.
    Catalog {
        offers: [Offer; 3],
        broken: bool,
    },
    Browse {
        mask: u8,
    },
    Cancel {
        by: usize,
        key: usize,
    },
    Settle {
        by: usize,
        says: Says,
        resolve: bool,
    },
    Truth {
        by: usize,
        connected: bool,
        newer: bool,
        follow: bool,
    },
    Calibrate {
        key: usize,
        drift: u8,
    },
    Execute {
        pick: usize,
    },
    Converge {
        by: usize,
    },
    Recover,
    Ensure {
        by: usize,
        key: usize,
    },
    Bootstrap {
        by: usize,
    },
    CleanUp {
        hours: u64,
    },
    Pass {
        seconds: u64,
    },
    Restart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Catalog,
    Install,
    Commit,
    Uninstall,
    Host,
    HostAuthorization,
    HostGeneration,
    Deactivate,
    Begin,
    Cancel,
    Disconnect,
    Observe,
    Accounts,
    Scheduler,
    Ids,
}

/// What goes wrong during a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mishap {
    Fault(Port, bool),
    Blow(u32, Blow),
}

/// What the other worker does while this one stands still after some write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meanwhile {
    pub(crate) after: u32,
    pub(crate) act: Act,
    /// Its leases run out before.
    pub(crate) expire: bool,
    /// It never goes on.
    pub(crate) dies: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) who: usize,
    pub(crate) act: Act,
    pub(crate) mishap: Option<Mishap>,
    pub(crate) meanwhile: Option<Meanwhile>,
}

pub(crate) fn steps(length: usize) -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..length)
}

fn step() -> impl Strategy<Value = Step> {
    let mishap = prop_oneof![
        4 => Just(None),
        1 => fault().prop_map(Some),
        1 => blow().prop_map(Some),
    ];
    let meanwhile = prop_oneof![5 => Just(None), 1 => meanwhile().prop_map(Some)];
    (prop_oneof![3 => Just(0), 1 => Just(1)], act(), mishap, meanwhile).prop_map(
        |(who, act, mishap, meanwhile)| match act {
            // Nothing can go wrong with these.
            Act::Catalog { .. } | Act::Pass { .. } | Act::Restart => {
                Step { who, act, mishap: None, meanwhile: None }
            }
            _ => Step { who, act, mishap, meanwhile },
        },
    )
}

fn meanwhile() -> impl Strategy<Value = Meanwhile> {
    (0..8_u32, act(), any::<bool>(), prop::bool::weighted(0.2)).prop_map(|(after, act, expire, dies)| {
        // Who restarts in the middle of the other one's work is that one's death.
        let act = if matches!(act, Act::Restart) { Act::Recover } else { act };
        Meanwhile { after, act, expire, dies }
    })
}

fn fault() -> impl Strategy<Value = Mishap> {
    use Port::{
        Accounts, Begin, Cancel, Catalog, Commit, Deactivate, Disconnect, Host, HostAuthorization,
        HostGeneration, Ids, Install, Observe, Scheduler, Uninstall,
    };
    let port = prop::sample::select(vec![
        Catalog,
        Install,
        Install,
        Commit,
        Uninstall,
        Host,
        Host,
        HostAuthorization,
        HostGeneration,
        Deactivate,
        Begin,
        Cancel,
        Disconnect,
        Observe,
        Accounts,
        Scheduler,
        Ids,
    ]);
    (port, any::<bool>()).prop_map(|(port, permanent)| Mishap::Fault(port, permanent))
}

fn blow() -> impl Strategy<Value = Mishap> {
    let kind = prop_oneof![
        2 => Just(Blow::Before), 2 => Just(Blow::After), 1 => Just(Blow::Conflict), 1 => Just(Blow::AnswerLost)
    ];
    (0..12_u32, kind).prop_map(|(writes, kind)| Mishap::Blow(writes, kind))
}

fn act() -> impl Strategy<Value = Act> {
    let key = 0..KEYS.len();
    // Mostly the first account, so that commands meet.
    let by = || prop_oneof![6 => Just(0_usize), 2 => Just(1), 1 => Just(2)];
    let says = prop_oneof![
        Just(Says::Pending),
        Just(Says::Connected),
        Just(Says::Connected),
        Just(Says::Failed),
        Just(Says::Superseded)
    ];
    prop_oneof![
        12 => command().prop_map(Act::Command),
        2 => ([offer(), offer(), offer()], prop::bool::weighted(0.1))
            .prop_map(|(offers, broken)| Act::Catalog { offers, broken }),
        1 => (0..8_u8).prop_map(|mask| Act::Browse { mask }),
        1 => (by(), key.clone()).prop_map(|(by, key)| Act::Cancel { by, key }),
        2 => (by(), says, any::<bool>()).prop_map(|(by, says, resolve)| Act::Settle { by, says, resolve }),
        2 => (by(), any::<bool>(), prop::bool::weighted(0.7), any::<bool>())
            .prop_map(|(by, connected, newer, follow)| Act::Truth { by, connected, newer, follow }),
        1 => (key.clone(), 0..4_u8).prop_map(|(key, drift)| Act::Calibrate { key, drift }),
        12 => (0..4_usize).prop_map(|pick| Act::Execute { pick }),
        3 => by().prop_map(|by| Act::Converge { by }),
        1 => Just(Act::Recover),
        1 => (by(), key).prop_map(|(by, key)| Act::Ensure { by, key }),
        1 => by().prop_map(|by| Act::Bootstrap { by }),
        1 => prop_oneof![Just(0_u64), Just(24)].prop_map(|hours| Act::CleanUp { hours }),
        2 => prop_oneof![Just(1_u64), Just(31), Just(601)].prop_map(|seconds| Act::Pass { seconds }),
        1 => Just(Act::Restart),
    ]
}

fn offer() -> impl Strategy<Value = Offer> {
    let version = prop_oneof![5 => (1..4_u8).prop_map(Some), 1 => Just(None)];
    (version, prop::bool::weighted(0.15), prop::bool::weighted(0.1))
        .prop_map(|(version, other_kind, foreign)| Offer { version, other_kind, foreign })
}

fn command() -> impl Strategy<Value = Command> {
    let begin = (prop::bool::weighted(0.3), prop_oneof![3 => Just(0_u64), 1 => Just(1), 1 => Just(2)])
        .prop_flat_map(|(replace, after_step)| {
            (any::<bool>(), any::<bool>()).prop_map(move |(connects, with_secret)| Verb::Begin {
                replace,
                after_step,
                connects,
                with_secret,
            })
        });
    let verb = prop_oneof![
        2 => Just(Verb::Refresh),
        6 => Just(Verb::Install),
        2 => Just(Verb::Uninstall),
        1 => Just(Verb::Disconnect),
        1 => any::<bool>().prop_map(Verb::Enable),
        4 => begin,
    ];
    let by = prop_oneof![6 => Just(0_usize), 2 => Just(1), 1 => Just(2)];
    let rev = prop_oneof![6 => Just(Rev::Global), 3 => Just(Rev::Connector), 1 => Just(Rev::Stale)];
    let id = prop_oneof![
        12 => Just(Id::Fresh), 2 => (0..32_usize).prop_map(Id::Again), 2 => (0..32_usize).prop_map(Id::Stolen)
    ];
    (verb, 0..KEYS.len(), by, rev, id).prop_map(|(verb, key, by, rev, id)| Command { verb, key, by, rev, id })
}
