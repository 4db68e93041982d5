//! The JSON Schemas of a capability: accepted once, then checked at every call.
//!
//! A schema comes from a stranger, and so does what it is held against. What is
//! accepted here is bounded in what keeping and checking it can cost: no reference
//! leaves the document, none leads back to itself, patterns are small and run in
//! linear time, all schemas of a connector share one [`Budget`], and the work of one
//! check is counted from schema and document before it begins.

mod budget;
mod cost;
mod pattern;
mod walk;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

pub(crate) use budget::Budget;
use cost::{Cost, Profile};
use walk::Walk;

use super::guest_text;

/// The longest schema, as text.
pub(crate) const SCHEMA_BYTES: usize = 256 << 10;
/// The most that one pattern may take when compiled. Behind the estimate, not
/// instead of it.
const PATTERN_BYTES: usize = 128 << 10;
/// The most that a schema may spend on one value.
const DEAREST: u64 = 100_000;
/// The work of one check: some 50 ms.
const WORK: u64 = 2_500_000;
/// Work that takes less than a millisecond.
const QUICK: u64 = 50_000;
/// Work up to which a failed check is repeated to say what failed where, even if
/// that collects what failed in each of many choices.
const DETAILED: u64 = 200_000;

/// An accepted schema.
pub(crate) struct Schema {
    validator: Validator,
    cost: Cost,
}

/// Where a document breaks its schema.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// A JSON pointer into the document.
    pub(crate) pointer: String,
    /// The keyword that is not satisfied.
    pub(crate) rule: String,
    /// What is wrong, without the document's own values.
    pub(crate) detail: String,
}

impl Schema {
    /// Reads and accepts a schema as one of those that share `budget`; the error says
    /// what is wrong with it. This computes for a while: not for a thread that others
    /// wait for.
    pub(crate) fn accept(text: &str, budget: &mut Budget) -> Result<(Value, Self), String> {
        if text.len() > SCHEMA_BYTES {
            return Err(format!("is longer than {SCHEMA_BYTES} bytes"));
        }
        budget.bytes(text.len())?;
        let schema: Value = serde_json::from_str(text).map_err(|cause| format!("is no JSON: {cause}"))?;
        budget.values(cost::size(&schema))?;
        if schema.get("type") != Some(&Value::from("object")) {
            return Err("must have \"type\": \"object\" at its root".to_owned());
        }
        let cost = Walk::through(&schema, budget)?;
        if cost.dearest() > DEAREST {
            return Err(format!("takes more than {DEAREST} steps to check a single value"));
        }
        let options = PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES);
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .offline()
            .with_pattern_options(options)
            .build(&schema)
            .map_err(|cause| {
                let reason = guest_text::plain(&cause.masked().to_string(), 300);
                format!("is no valid JSON Schema at {:?}: {reason}", cause.instance_path().as_str())
            })?;
        Ok((schema, Self { validator, cost }))
    }

    /// Whether checking `document` is so quick that nobody is held up by it.
    pub(crate) fn is_quick(&self, document: &Value) -> bool {
        Profile::of(document, QUICK).is_some_and(|profile| self.cost.of(&profile) <= QUICK)
    }

    /// Whether reading and checking any document of `bytes` is.
    pub(crate) fn is_quick_for(&self, bytes: usize) -> bool {
        self.cost.of_text(bytes) <= QUICK
    }

    /// Checks a document. This may compute for some 50 ms, unless it is quick.
    pub(crate) fn check(&self, document: &Value) -> Result<(), Mismatch> {
        let work = Profile::of(document, WORK).map_or(u64::MAX, |profile| self.cost.of(&profile));
        if work > WORK {
            return Err(Mismatch {
                pointer: String::new(),
                rule: "size".to_owned(),
                detail: "it is too large to be checked against this schema".to_owned(),
            });
        }
        if self.validator.is_valid(document) {
            return Ok(());
        }
        let choices = self.cost.choices;
        if choices > 0 && work.saturating_mul(1 + 2 * choices) > DETAILED {
            return Err(Mismatch {
                pointer: String::new(),
                rule: "schema".to_owned(),
                detail: "it does not match; it is too large to say where".to_owned(),
            });
        }
        self.validator.validate(document).map_err(|error| Mismatch {
            pointer: guest_text::plain(error.instance_path().as_str(), 300),
            rule: guest_text::plain(error.kind().keyword(), 64),
            detail: guest_text::plain(&error.masked().to_string(), 300),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn accept(schema: &Value) -> Result<(Value, Schema), String> {
        Schema::accept(&schema.to_string(), &mut Budget::default())
    }

    fn refused(schema: &Value) -> String {
        accept(schema).err().expect("a refusal")
    }

    #[test]
    fn a_mismatch_names_pointer_and_rule_and_no_value() {
        let schema = json!({"type": "object", "properties": {"a": {"items": {"maxLength": 3}}}});
        let (_, schema) = accept(&schema).expect("accepted");
        assert_eq!(schema.check(&json!({"a": ["abc"]})), Ok(()));
        let mismatch = schema.check(&json!({"a": ["abc", "secret"]})).expect_err("a mismatch");
        assert_eq!((mismatch.pointer.as_str(), mismatch.rule.as_str()), ("/a/1", "maxLength"));
        assert!(!mismatch.detail.contains("secret"), "{}", mismatch.detail);
    }

    #[test]
    fn references_stay_inside_and_never_lead_back() {
        let inside =
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}});
        assert!(accept(&inside).is_ok());
        let outside = json!({"type": "object", "$ref": "https://schemas.example/a.json"});
        assert!(refused(&outside).contains("inside the document only"));
        assert!(refused(&json!({"type": "object", "allOf": [{"$ref": "#"}]})).contains("leads back"));
        let missing = json!({"type": "object", "$ref": "#/$defs/none"});
        assert!(refused(&missing).contains("not there"));
        for keyword in ["$id", "$anchor", "$dynamicRef"] {
            assert!(refused(&json!({"type": "object", keyword: "x"})).contains(keyword));
        }
    }

    #[test]
    fn a_schema_that_doubles_itself_is_refused() {
        let mut definitions = Map::new();
        for level in 0..30 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            definitions.insert(format!("d{level}"), json!({"allOf": [next, next]}));
        }
        definitions.insert("d30".into(), json!(true));
        let schema = json!({"type": "object", "$ref": "#/$defs/d0", "$defs": definitions});
        assert!(refused(&schema).contains("applies more than"));
    }

    #[test]
    fn what_is_no_schema_of_an_object_is_refused() {
        assert!(Schema::accept("{", &mut Budget::default()).is_err_and(|reason| reason.contains("no JSON")));
        assert!(refused(&json!({"type": "array"})).contains("\"object\""));
        assert!(refused(&json!({"type": "object", "properties": 5})).contains("no valid JSON Schema"));
        assert!(
            refused(&json!({"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}))
                .contains("dialect")
        );
        let backtracking = json!({"type": "object", "properties": {"a": {"pattern": "(?=a)(a+)+$"}}});
        assert!(refused(&backtracking).contains("no valid JSON Schema"));
        let long = json!({"type": "object", "description": "x".repeat(SCHEMA_BYTES)});
        assert!(refused(&long).contains("longer"));
    }

    #[test]
    fn patterns_that_repeat_too_much_are_refused_before_they_are_compiled() {
        let property = |keyword: &str, value: Value| json!({"type": "object", keyword: value});
        let counted = property("properties", json!({"a": {"pattern": "[a-z0]{3000,4000}"}}));
        assert!(refused(&counted).contains("positions"));
        let named = property("patternProperties", json!({"[a-z0]{3000,4000}": {}}));
        assert!(refused(&named).contains("positions"));
        for usual in [r"^[\p{L}\w .-]+@[^@\s]{1,15}$", "^[a-z0-9-]{1,63}$", r"^\d{4}-\d{2}-\d{2}$"] {
            let usual = property("properties", json!({"a": {"pattern": usual}}));
            assert_eq!(accept(&usual).err(), None);
        }
    }

    #[test]
    fn schemas_share_one_budget_of_patterns() {
        let schema = json!({"type": "object", "properties": {"a": {"pattern": "^[a-z]{900}$"}}}).to_string();
        let mut budget = Budget::default();
        let reason = (0..1_000).find_map(|_| Schema::accept(&schema, &mut budget).err()).expect("a refusal");
        assert!(reason.contains("patterns"), "{reason}");
        assert!(Schema::accept(r#"{"type":"object"}"#, &mut budget).is_ok(), "others still fit");
    }

    #[test]
    fn schemas_share_one_budget_of_subschemas_and_values() {
        let properties: Map<_, _> = (0..5_000).map(|n| (format!("p{n}"), json!({}))).collect();
        let schema = json!({"type": "object", "properties": properties}).to_string();
        let mut budget = Budget::default();
        let reason = (0..100).find_map(|_| Schema::accept(&schema, &mut budget).err()).expect("a refusal");
        assert!(reason.contains("subschemas"), "{reason}");
        let schema = json!({"type": "object", "default": vec![0; 50_000]}).to_string();
        let mut budget = Budget::default();
        let reason = (0..100).find_map(|_| Schema::accept(&schema, &mut budget).err()).expect("a refusal");
        assert!(reason.contains("values"), "{reason}");
    }

    #[test]
    fn a_long_list_of_composite_members_is_refused_and_one_of_names_is_not() {
        let of = |members: Vec<Value>| json!({"type": "object", "properties": {"a": {"items": {"enum": members}}}});
        assert!(refused(&of((0..2_000).map(|n| json!([n])).collect())).contains("enum"));
        let (_, names) =
            accept(&of((0..10_000).map(|n| json!(format!("n{n}"))).collect())).expect("accepted");
        let document = json!({"a": vec!["n9"; 10_000]});
        assert_eq!(names.check(&document), Ok(()));
    }

    #[test]
    fn work_is_counted_before_it_is_done() {
        let of = |items: Value| {
            let schema = json!({"type": "object", "properties": {"a": items}});
            accept(&schema).expect("accepted").1
        };
        let composite: Vec<_> = (0..900).map(|n| json!([n])).collect();
        let listed = of(json!({"items": {"enum": composite}}));
        let unique = of(json!({"uniqueItems": true}));
        let choice = of(json!({"items": {"anyOf": vec![json!({"required": vec!["a", "b"]}); 500]}}));
        let text = of(json!({"items": {"pattern": "(a?){400}b"}}));
        let nested = (0..12).fold(json!({}), |inner, _| json!({"allOf": [inner], "unevaluatedItems": false}));
        let nested = of(nested);
        let arrays = |count: usize| json!({"a": vec![json!([7]); count]});
        for (name, schema, large) in [
            ("enum", &listed, arrays(9_000)),
            ("uniqueItems", &unique, arrays(9_000)),
            ("anyOf", &choice, arrays(9_000)),
            ("pattern", &text, json!({"a": ["a".repeat(100_000)]})),
            ("unevaluatedItems", &nested, arrays(9_000)),
        ] {
            let mismatch = schema.check(&large).expect_err(name);
            assert_eq!(mismatch.rule, "size", "{name}: {mismatch:?}");
            assert!(!schema.is_quick(&large), "{name}");
        }
        assert_eq!(listed.check(&arrays(3)), Ok(()));
        assert_eq!(unique.check(&arrays(2)).expect_err("twice").rule, "uniqueItems");
        assert!(unique.is_quick(&arrays(2)) && unique.is_quick_for(100));
    }

    #[test]
    fn usual_schemas_take_large_documents() {
        let cells: Map<_, _> = (0..50).map(|n| (format!("c{n}"), json!({"type": "integer"}))).collect();
        let row = json!({"type": "object", "properties": cells, "required": ["c0"]});
        let (_, schema) =
            accept(&json!({"type": "object", "properties": {"rows": {"items": row}}})).expect("accepted");
        let row: Map<_, _> = (0..50).map(|n| (format!("c{n}"), json!(n))).collect();
        let document = json!({"rows": vec![Value::Object(row); 2_000]});
        assert_eq!(schema.check(&document), Ok(()));
        assert!(!schema.is_quick(&document));
        assert!(schema.is_quick(&json!({"rows": []})));
    }

    #[test]
    fn a_large_mismatch_in_choices_is_not_listed() {
        let schema = json!({"type": "object", "properties": {"a": {"items": {"anyOf": [{"const": 1}, {"const": 2}]}}}});
        let (_, schema) = accept(&schema).expect("accepted");
        let mismatch = schema.check(&json!({"a": vec![3; 50_000]})).expect_err("a mismatch");
        assert_eq!(mismatch.rule, "schema");
        assert_eq!(schema.check(&json!({"a": [3]})).expect_err("a mismatch").rule, "anyOf");
    }
}
