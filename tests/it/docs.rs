//! The documents say what the code does.

use std::collections::BTreeSet;

use portcullis::{
    domain::manifest::{
        AgentRouting, CompatibilityRequirements, ComponentLimits, CredentialInjection, EffectiveLimits,
        Manifest, RemoteLimits, RemoteStreamableHttp, WasmComponent,
    },
    sandbox::SandboxSettings,
};
use serde::{
    Deserialize,
    de::{self, Deserializer, Visitor},
};
use serde_json::{Value, json};

const MANIFEST: &str = include_str!("../../docs/manifest.md");

/// Learns the names of a struct's fields from what serde asks for.
struct Fields<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(de::Error::custom("no struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        Err(de::Error::custom("only the names matter"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

fn fields<'de, T: Deserialize<'de>>() -> BTreeSet<&'static str> {
    let mut names: &[&str] = &[];
    assert!(T::deserialize(Fields(&mut names)).is_err());
    assert!(!names.is_empty(), "a struct with names");
    names.iter().copied().collect()
}

/// The table under a heading: a row's field, and its other cells.
fn table(heading: &str) -> Vec<(&'static str, Vec<&'static str>)> {
    let (_, section) = MANIFEST
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("docs/manifest.md has no {heading:?}"));
    let section = section.split("\n#").next().unwrap_or_default();
    section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .map(|(field, rest)| (field, rest.trim_end_matches(" |").split(" | ").collect()))
        .collect()
}

fn documents<'de, T: Deserialize<'de>>(heading: &str) {
    let rows: Vec<&str> = table(heading).into_iter().map(|(field, _)| field).collect();
    let documented: BTreeSet<&str> = rows.iter().copied().collect();
    assert_eq!(documented, fields::<T>(), "the table under {heading:?} and the fields in the code differ");
    assert_eq!(rows.len(), documented.len(), "{heading:?} has a row twice");
}

fn example() -> Value {
    let (_, rest) = MANIFEST.split_once("```json\n").expect("an example");
    let (text, _) = rest.split_once("```").expect("its end");
    serde_json::from_str(text).expect("JSON")
}

fn number(cell: &str) -> u64 {
    let digits = cell.split(|one: char| !one.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or_else(|_| panic!("{cell:?} starts with no number"))
}

#[test]
fn every_field_of_the_manifest_is_documented_and_no_other() {
    documents::<Manifest>("## The document");
    documents::<WasmComponent>("## `implementation`, kind `wasm_component`");
    documents::<ComponentLimits>("## `implementation.limits`");
    documents::<CredentialInjection>("## `implementation.credential`");
    documents::<RemoteStreamableHttp>("## `implementation`, kind `remote_streamable_http`");
    documents::<RemoteLimits>("### Limits of a remote connector");
    documents::<AgentRouting>("## `agentRouting`");
    documents::<CompatibilityRequirements>("## `compatibility`");
}

#[test]
fn the_example_of_a_manifest_is_one() {
    Manifest::parse(example().to_string().as_bytes()).expect("the example keeps every rule");
}

#[test]
fn the_documented_limits_are_those_of_the_code() {
    let defaults = serde_json::to_value(EffectiveLimits::default()).expect("JSON");
    let ceilings = serde_json::to_value(SandboxSettings::new("").ceilings).expect("JSON");
    for (field, cells) in table("## `implementation.limits`") {
        let [_, default, from, to, ceiling] = cells[..] else {
            panic!("{field} has cells missing: {cells:?}")
        };
        assert_eq!(defaults[field], number(default), "{field}, default");
        assert_eq!(ceilings[field], number(ceiling), "{field}, ceiling");
        range(&example(), field, number(from), number(to));
    }
    let mut remote = example();
    remote["requiredCapabilities"] = json!(["tools"]);
    remote["implementation"] = json!({
        "kind": "remote_streamable_http", "endpoint": "https://mcp.example.org/",
        "authentication": "none", "allowedHosts": ["mcp.example.org"], "limits": {},
    });
    let defaults = serde_json::to_value(RemoteLimits::default()).expect("JSON");
    for (field, cells) in table("### Limits of a remote connector") {
        let [_, default, from, to] = cells[..] else { panic!("{field} has cells missing: {cells:?}") };
        assert_eq!(defaults[field], number(default), "{field}, default");
        range(&remote, field, number(from), number(to));
    }
}

/// `from` and `to` are taken, and what lies next to them outside is not.
fn range(manifest: &Value, field: &str, from: u64, to: u64) {
    for (value, taken) in [(from - 1, false), (from, true), (to, true), (to + 1, false)] {
        let mut manifest = manifest.clone();
        manifest["implementation"]["limits"][field] = json!(value);
        let read = Manifest::parse(manifest.to_string().as_bytes());
        assert_eq!(read.is_ok(), taken, "{field} of {value}: {read:?}");
    }
}
