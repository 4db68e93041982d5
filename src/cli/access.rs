//! What a release reaches, takes and says it needs: what the host enforces comes
//! first, and against a release in place what is more is marked.

use super::report::size;
use crate::{
    api::dto,
    domain::manifest::{CredentialPlacement, EffectiveLimits},
};

/// What people agree to.
pub(super) fn lines(connector: &dto::Connector) -> Vec<String> {
    let manifest = &connector.release.manifest;
    let before = connector.installation.installed_access.as_ref();
    let access = &manifest.access;
    let hosts = names(&access.allowed_hosts, before.map(|one| one.access.allowed_hosts.as_slice()));
    let reaches = match hosts {
        Some(hosts) if access.allowed_hosts.is_empty() => format!("nothing: it has no network{hosts}"),
        Some(hosts) => format!("{hosts}, over https only"),
        None => "nothing: it has no network".to_owned(),
    };
    let needs = names(&manifest.permissions, before.map(|one| one.permissions.as_slice()));
    let mut lines = vec![
        format!("reaches        {reaches}"),
        format!("  credential   {}", credential(access, before.map(|one| &one.access))),
        format!("  limits       {}", limits(&access.limits, before.map(|one| &one.access.limits))),
        format!("says it needs  {}", needs.unwrap_or_else(|| "nothing".to_owned())),
    ];
    if before.is_none() && has_another_in_place(connector) {
        lines
            .push("  what the installed release may do is not known, so nothing is marked as new".to_owned());
    }
    lines
}

fn has_another_in_place(connector: &dto::Connector) -> bool {
    let installed = &connector.installation.installed_release_digest;
    installed.as_ref().is_some_and(|digest| *digest != connector.release.release_digest)
}

/// The names, the new ones marked and then those that are no longer there.
fn names(now: &[String], before: Option<&[String]>) -> Option<String> {
    let shown = |name: &String| match before {
        Some(before) if !before.contains(name) => format!("{name} (new)"),
        _ => name.clone(),
    };
    let gone: Vec<&str> =
        before.unwrap_or_default().iter().filter(|name| !now.contains(name)).map(String::as_str).collect();
    let mut text = now.iter().map(shown).collect::<Vec<String>>().join(", ");
    if !gone.is_empty() {
        text.push_str(&format!(" (no longer: {})", gone.join(", ")));
    }
    (!text.is_empty()).then_some(text)
}

fn credential(access: &dto::Access, before: Option<&dto::Access>) -> String {
    let describe = |access: &dto::Access| {
        access.credential.as_ref().map(|credential| {
            let place = match &credential.placement {
                CredentialPlacement::Header { name, .. } => format!("the header {name}"),
                CredentialPlacement::Query { name } => format!("the parameter {name}"),
            };
            format!("put by the host into {place}, for {}", credential.hosts.join(", "))
        })
    };
    match (describe(access), before.map(describe)) {
        (None, _) => "none".to_owned(),
        (Some(now), Some(before)) if before.as_ref() != Some(&now) => format!("{now} (new)"),
        (Some(now), _) => now,
    }
}

fn limits(now: &dto::Limits, before: Option<&dto::Limits>) -> String {
    let plain = |count: u64| count.to_string();
    let ms = |count: u64| format!("{count} ms");
    let host = EffectiveLimits::default();
    type Limit<'a> = (&'a str, fn(&dto::Limits) -> Option<u64>, u64, fn(u64) -> String);
    let all: [Limit<'_>; 6] = [
        ("memory", |one| one.memory_bytes, host.memory_bytes, size),
        ("CPU", |one| one.cpu_ms, host.cpu_ms, ms),
        ("in all", |one| one.wall_ms, host.wall_ms, ms),
        ("calls at once", |one| one.concurrent_calls.map(u64::from), u64::from(host.concurrent_calls), plain),
        ("answer", |one| one.response_bytes, host.response_bytes, size),
        ("table elements", |one| one.table_elements, host.table_elements, plain),
    ];
    let asked: Vec<String> = all
        .into_iter()
        .filter_map(|(name, of, default, text)| {
            let count = of(now).unwrap_or(default);
            let was = before.map(|before| of(before).unwrap_or(default));
            match was {
                Some(was) if was < count => {
                    Some(format!("{} {name} (raised from {})", text(count), text(was)))
                }
                _ => of(now).map(|count| format!("{} {name}", text(count))),
            }
        })
        .collect();
    if asked.is_empty() { "the host's defaults".to_owned() } else { asked.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_more_is_marked_and_what_is_gone_is_named() {
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let (now, before) = (list(&["a.example", "b.example"]), list(&["a.example", "c.example"]));
        assert_eq!(names(&now, None).as_deref(), Some("a.example, b.example"));
        assert_eq!(
            names(&now, Some(&before)).as_deref(),
            Some("a.example, b.example (new) (no longer: c.example)")
        );
        assert_eq!(names(&[], Some(&[])), None);

        let mib = |count: u64| dto::Limits { memory_bytes: Some(count << 20), ..dto::Limits::default() };
        assert_eq!(limits(&mib(32), Some(&mib(16))), "32 MiB memory (raised from 16 MiB)");
        assert_eq!(limits(&mib(16), Some(&mib(32))), "16 MiB memory");
        // A limit that is left out now is the host's.
        assert!(limits(&dto::Limits::default(), Some(&mib(1))).contains("memory (raised from 1 MiB)"));
        assert_eq!(limits(&dto::Limits::default(), None), "the host's defaults");
    }
}
