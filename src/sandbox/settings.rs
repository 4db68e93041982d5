//! What an operator decides about the sandbox.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::{address::is_global, limits::default_budget};
use crate::domain::{
    error::Error,
    manifest::{EffectiveLimits, HostName},
};

/// A host that the operator marked for development. A connector that may talk to
/// it may do so over http and at any port; the connection always goes to
/// `address`, whatever the name resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevelopmentHost {
    /// The name that connectors use.
    pub host: HostName,
    /// Where connections to it go; a loopback or private address.
    pub address: SocketAddr,
}

/// Settings of a [`super::SandboxHost`].
#[derive(Clone, Debug)]
pub struct SandboxSettings {
    /// The private folder of compiled components; made with mode 0700.
    pub cache_dir: PathBuf,
    /// How many instances there may be at a time, over all connectors.
    pub pool_instances: u32,
    /// Memory that all instances together may take; by default half of this machine's.
    pub memory_budget_bytes: u64,
    /// How often a guest that computes is interrupted; 1 to 100 ms.
    pub tick: Duration,
    /// Threads that run guests; none means one for each core.
    pub guest_threads: Option<usize>,
    /// What a call may take where the manifest does not say.
    pub defaults: EffectiveLimits,
    /// What a call may take at most, whatever the manifest says.
    pub ceilings: EffectiveLimits,
    /// Hosts marked for development.
    pub development_hosts: Vec<DevelopmentHost>,
    /// The `portcullis` program, which then compiles components in a process of its
    /// own with limits on time and memory. None compiles in this process without
    /// limits: only for components that are trusted.
    pub compiler: Option<PathBuf>,
}

impl SandboxSettings {
    /// The defaults, with compiled components in `cache_dir`.
    #[must_use]
    pub fn new(cache_dir: impl Into<PathBuf>) -> Self {
        Self {
            cache_dir: cache_dir.into(),
            pool_instances: 1_000,
            memory_budget_bytes: default_budget(),
            tick: Duration::from_millis(1),
            guest_threads: None,
            defaults: EffectiveLimits::default(),
            ceilings: EffectiveLimits {
                memory_bytes: 512 << 20,
                table_elements: 100_000,
                cpu_ms: 60_000,
                wall_ms: 120_000,
                concurrent_calls: 256,
                response_bytes: 10 << 20,
            },
            development_hosts: Vec::new(),
            compiler: None,
        }
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::InvalidRequest`] naming the setting.
    pub(super) fn validate(&self) -> Result<(), Error> {
        let check =
            |holds: bool, message: &str| if holds { Ok(()) } else { Err(Error::invalid_request(message)) };
        check((1..=10_000).contains(&self.pool_instances), "sandbox: poolInstances must be 1 to 10,000")?;
        check(self.memory_budget_bytes >= 1 << 20, "sandbox: memoryBudgetBytes must be at least 1 MiB")?;
        check(
            (Duration::from_millis(1)..=Duration::from_millis(100)).contains(&self.tick),
            "sandbox: tick must be 1 to 100 ms",
        )?;
        check(self.guest_threads != Some(0), "sandbox: guestThreads must be at least 1")?;
        let ceilings = &self.ceilings;
        check(
            (65_536..=4 << 30).contains(&ceilings.memory_bytes)
                && (1..=1_000_000).contains(&ceilings.table_elements)
                && ceilings.cpu_ms > 0
                && ceilings.wall_ms > 0
                && ceilings.concurrent_calls > 0
                && ceilings.response_bytes > 0,
            "sandbox: every ceiling must be more than nothing; memoryBytes 64 KiB to 4 GiB, tableElements 1 to 1,000,000",
        )?;
        for (at, one) in self.development_hosts.iter().enumerate() {
            let twice = self.development_hosts[..at].iter().any(|earlier| earlier.host == one.host);
            check(!twice, &format!("sandbox: development host {} is named twice", one.host))?;
            check(
                !is_global(one.address.ip()),
                &format!(
                    "sandbox: development host {} must be at a loopback or private address, not {}",
                    one.host, one.address
                ),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::error::ErrorCode;

    #[test]
    fn a_development_host_is_named_once_and_lies_nearby() {
        let with = |hosts: &[(&str, &str)]| {
            let mut settings = SandboxSettings::new("cache");
            settings.development_hosts = hosts
                .iter()
                .map(|(host, address)| DevelopmentHost {
                    host: HostName::parse(host).expect("a host"),
                    address: address.parse().expect("an address"),
                })
                .collect();
            settings.validate()
        };
        with(&[("a.test", "127.0.0.1:80"), ("b.test", "10.1.2.3:80"), ("c.test", "[::1]:80")])
            .expect("nearby");
        for hosts in
            [&[("a.test", "8.8.8.8:80")][..], &[("a.test", "127.0.0.1:80"), ("a.test", "127.0.0.1:81")]]
        {
            let refused = with(hosts).expect_err("refused");
            assert_eq!(refused.code, ErrorCode::InvalidRequest);
            assert!(refused.message.contains("a.test"), "{}", refused.message);
        }
    }
}
