//! The JSON Schemas of a capability: accepted once, then checked at every call.
//!
//! A schema comes from a stranger, and so does what it is held against. What is
//! accepted here is bounded in what checking it can cost: no reference leaves the
//! document, none leads back to itself, patterns run in linear time, and the work
//! of one check is limited by the size of schema and document together.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

use super::guest_text;

/// The longest schema, as text.
pub(crate) const SCHEMA_BYTES: usize = 256 << 10;
/// The dialect of the contract.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Subschemas that a schema may apply, references followed.
const APPLIED: usize = 10_000;
/// How deep subschemas may lie in one another, references followed.
const DEPTH: usize = 256;
/// Subschemas times values of one check.
const WORK: usize = 50_000_000;

/// An accepted schema.
pub(crate) struct Schema {
    validator: Validator,
    applied: usize,
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
    /// Reads and accepts a schema; the error says what is wrong with it.
    pub(crate) fn accept(text: &str) -> Result<(Value, Self), String> {
        if text.len() > SCHEMA_BYTES {
            return Err(format!("is longer than {SCHEMA_BYTES} bytes"));
        }
        let schema: Value = serde_json::from_str(text).map_err(|cause| format!("is no JSON: {cause}"))?;
        if schema.get("type") != Some(&Value::from("object")) {
            return Err("must have \"type\": \"object\" at its root".to_owned());
        }
        let mut walk = Walk { root: &schema, open: Vec::new(), applied: 0 };
        walk.schema(&schema, 0)?;
        let applied = walk.applied;
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(1 << 20).dfa_size_limit(1 << 20))
            .build(&schema)
            .map_err(|cause| {
                let reason = guest_text::plain(&cause.masked().to_string(), 300);
                format!("is no valid JSON Schema at {:?}: {reason}", cause.instance_path().as_str())
            })?;
        Ok((schema, Self { validator, applied }))
    }

    /// Checks a document.
    pub(crate) fn check(&self, document: &Value) -> Result<(), Mismatch> {
        if count(document).saturating_mul(self.applied) > WORK {
            return Err(Mismatch {
                pointer: String::new(),
                rule: "size".to_owned(),
                detail: "it has too many values to be checked against this schema".to_owned(),
            });
        }
        self.validator.validate(document).map_err(|error| Mismatch {
            pointer: guest_text::plain(error.instance_path().as_str(), 300),
            rule: guest_text::plain(error.kind().keyword(), 64),
            detail: guest_text::plain(&error.masked().to_string(), 300),
        })
    }
}

/// The values in a document, itself included.
fn count(document: &Value) -> usize {
    1 + match document {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// Follows a schema as a check would.
struct Walk<'a> {
    root: &'a Value,
    open: Vec<&'a str>,
    applied: usize,
}

impl<'a> Walk<'a> {
    fn schema(&mut self, schema: &'a Value, depth: usize) -> Result<(), String> {
        self.applied += 1;
        if self.applied > APPLIED {
            return Err(format!("applies more than {APPLIED} subschemas, references followed"));
        }
        if depth > DEPTH {
            return Err(format!("nests subschemas deeper than {DEPTH}, references followed"));
        }
        let Value::Object(keywords) = schema else { return Ok(()) };
        for (keyword, value) in keywords {
            self.keyword(keyword, value, depth + 1)?;
        }
        Ok(())
    }

    fn keyword(&mut self, keyword: &str, value: &'a Value, depth: usize) -> Result<(), String> {
        match keyword {
            "$ref" => self.reference(value.as_str().ok_or("has a $ref that is no text")?, depth),
            "$schema" if value.as_str().map(|dialect| dialect.trim_end_matches('#')) != Some(DIALECT) => {
                Err(format!("names another dialect than {DIALECT}"))
            }
            "$id" | "$anchor" | "$dynamicRef" | "$dynamicAnchor" | "$recursiveRef" | "$vocabulary" => {
                Err(format!("uses {keyword}, which this host does not follow"))
            }
            "properties" | "patternProperties" | "dependentSchemas" => {
                self.each(value.as_object().into_iter().flat_map(Map::values), depth)
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                self.each(value.as_array().into_iter().flatten(), depth)
            }
            "items"
            | "contains"
            | "additionalProperties"
            | "propertyNames"
            | "unevaluatedItems"
            | "unevaluatedProperties"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contentSchema" => self.schema(value, depth),
            _ => Ok(()),
        }
    }

    fn each(&mut self, schemas: impl Iterator<Item = &'a Value>, depth: usize) -> Result<(), String> {
        for schema in schemas {
            self.schema(schema, depth)?;
        }
        Ok(())
    }

    fn reference(&mut self, reference: &'a str, depth: usize) -> Result<(), String> {
        let shown = guest_text::plain(reference, 100);
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(format!("refers to {shown:?}; a $ref may point inside the document only"));
        };
        if self.open.contains(&reference) {
            return Err(format!("leads back to itself through {shown:?}"));
        }
        if pointer.contains('%') || !(pointer.is_empty() || pointer.starts_with('/')) {
            return Err(format!("refers to {shown:?}; a $ref must be # and a plain JSON pointer"));
        }
        let target =
            self.root.pointer(pointer).ok_or_else(|| format!("refers to {shown:?}, which is not there"))?;
        self.open.push(reference);
        let outcome = self.schema(target, depth);
        self.open.pop();
        outcome
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(schema: &Value) -> String {
        Schema::accept(&schema.to_string()).err().expect("a refusal")
    }

    #[test]
    fn a_mismatch_names_pointer_and_rule_and_no_value() {
        let schema = json!({"type": "object", "properties": {"a": {"items": {"maxLength": 3}}}});
        let (_, schema) = Schema::accept(&schema.to_string()).expect("accepted");
        assert_eq!(schema.check(&json!({"a": ["abc"]})), Ok(()));
        let mismatch = schema.check(&json!({"a": ["abc", "secret"]})).expect_err("a mismatch");
        assert_eq!((mismatch.pointer.as_str(), mismatch.rule.as_str()), ("/a/1", "maxLength"));
        assert!(!mismatch.detail.contains("secret"), "{}", mismatch.detail);
    }

    #[test]
    fn references_stay_inside_and_never_lead_back() {
        let inside =
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}});
        assert!(Schema::accept(&inside.to_string()).is_ok());
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
        assert!(Schema::accept("{").is_err_and(|reason| reason.contains("no JSON")));
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
}
