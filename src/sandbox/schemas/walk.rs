//! Follows a schema as a check would, and counts what it finds.

use serde_json::{Map, Value};

use super::{budget::Budget, cost, cost::Cost, pattern};
use crate::sandbox::guest_text;

/// The dialect of the contract.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Subschemas that a schema may apply, references followed.
const APPLIED: usize = 10_000;
/// How deep subschemas may lie in one another, references followed.
const DEPTH: usize = 256;
/// Values in an `enum` or `const` that lists more than scalars.
const LISTED: u64 = 2_000;

/// A walk through one schema.
pub(super) struct Walk<'a> {
    root: &'a Value,
    budget: &'a mut Budget,
    open: Vec<&'a str>,
    applied: usize,
}

/// What a subschema spends, while its keywords are read.
struct Sum {
    /// By itself and on what lies below.
    cost: Cost,
    /// Through subschemas for the same value.
    inside: Cost,
    chooses: bool,
    unevaluated: bool,
}

impl<'a> Walk<'a> {
    /// Walks through `root` and answers what checking against it costs.
    pub(super) fn through(root: &'a Value, budget: &'a mut Budget) -> Result<Cost, String> {
        Self { root, budget, open: Vec::new(), applied: 0 }.schema(root, 0)
    }

    fn schema(&mut self, schema: &'a Value, depth: usize) -> Result<Cost, String> {
        self.applied += 1;
        if self.applied > APPLIED {
            return Err(format!("applies more than {APPLIED} subschemas, references followed"));
        }
        if depth > DEPTH {
            return Err(format!("nests subschemas deeper than {DEPTH}, references followed"));
        }
        self.budget.subschema()?;
        let Value::Object(keywords) = schema else { return Ok(Cost::value(1)) };
        let mut sum = Sum {
            cost: Cost::value(1 + keywords.len() as u64),
            inside: Cost::default(),
            chooses: false,
            unevaluated: false,
        };
        for (keyword, value) in keywords {
            self.keyword(keyword, value, depth + 1, &mut sum)?;
        }
        let Sum { mut cost, mut inside, chooses, unevaluated } = sum;
        if unevaluated {
            // What the others have evaluated is found out by asking them again.
            inside.times(2 + inside.choices);
        }
        inside.choices += u64::from(chooses);
        cost.and(&inside);
        Ok(cost)
    }

    fn keyword(
        &mut self,
        keyword: &str,
        value: &'a Value,
        depth: usize,
        sum: &mut Sum,
    ) -> Result<(), String> {
        match keyword {
            "$ref" => {
                let target = self.reference(value.as_str().ok_or("has a $ref that is no text")?, depth)?;
                sum.inside.and(&target);
            }
            "$schema" if value.as_str().map(|dialect| dialect.trim_end_matches('#')) != Some(DIALECT) => {
                return Err(format!("names another dialect than {DIALECT}"));
            }
            "$id" | "$anchor" | "$dynamicRef" | "$dynamicAnchor" | "$recursiveRef" | "$vocabulary"
            | "dependencies" | "additionalItems" => {
                return Err(format!("uses {keyword}, which this host does not follow"));
            }
            "properties" => {
                let members = value.as_object().into_iter().flat_map(Map::values);
                let one = self.one_of(members, depth)?;
                sum.cost.and(&one.below(1));
                let declared = value.as_object().map_or(0, Map::len) as u64;
                sum.cost.and(&Cost::value(declared));
            }
            "prefixItems" => {
                let one = self.one_of(value.as_array().into_iter().flatten(), depth)?;
                sum.cost.and(&one.below(1));
            }
            "patternProperties" => {
                for (pattern, schema) in value.as_object().into_iter().flatten() {
                    let positions = self.pattern(pattern)?;
                    // By the members, by additionalProperties and by unevaluatedProperties.
                    let mut tried = Cost::byte(positions);
                    tried.and(&Cost::value(1).below(1));
                    tried.times(3);
                    sum.cost.and(&tried);
                    sum.cost.and(&self.schema(schema, depth)?.below(1));
                }
            }
            "pattern" => {
                if let Some(pattern) = value.as_str() {
                    let positions = self.pattern(pattern)?;
                    sum.cost.and(&Cost::byte(positions));
                }
            }
            "allOf" => self.inside(value.as_array().into_iter().flatten(), depth, sum)?,
            "anyOf" | "oneOf" => {
                sum.chooses = true;
                self.inside(value.as_array().into_iter().flatten(), depth, sum)?;
            }
            "dependentSchemas" => {
                sum.chooses = true;
                self.inside(value.as_object().into_iter().flat_map(Map::values), depth, sum)?;
            }
            "not" | "if" | "then" | "else" | "contentSchema" => {
                sum.chooses = true;
                self.inside(std::iter::once(value), depth, sum)?;
            }
            "contains" => {
                // Asked again by unevaluatedItems.
                let below = self.schema(value, depth)?;
                sum.inside.and(&below.below(1));
            }
            "items" | "additionalProperties" | "propertyNames" => {
                let below = self.schema(value, depth)?;
                sum.cost.and(&below.clone().below(1));
                if keyword == "propertyNames" {
                    // Names count as text of the object that has them.
                    sum.cost.and(&below);
                }
            }
            "unevaluatedItems" | "unevaluatedProperties" => {
                sum.unevaluated = true;
                let below = self.schema(value, depth)?;
                sum.inside.and(&below.below(1));
            }
            "enum" | "const" => self.listed(keyword, value, sum)?,
            "required" | "dependentRequired" => {
                let size = cost::size(value);
                self.budget.values(size)?;
                sum.cost.and(&Cost::value(size));
            }
            "uniqueItems" => sum.cost.and(&Cost::pair()),
            _ => {}
        }
        Ok(())
    }

    /// Subschemas for the same value: all of them are asked.
    fn inside(
        &mut self,
        schemas: impl Iterator<Item = &'a Value>,
        depth: usize,
        sum: &mut Sum,
    ) -> Result<(), String> {
        for schema in schemas {
            let one = self.schema(schema, depth)?;
            sum.inside.and(&one);
        }
        Ok(())
    }

    /// Subschemas of which one value meets one at most.
    fn one_of(&mut self, schemas: impl Iterator<Item = &'a Value>, depth: usize) -> Result<Cost, String> {
        let mut dearest = Cost::default();
        for schema in schemas {
            let one = self.schema(schema, depth)?;
            dearest.or(&one);
        }
        Ok(dearest)
    }

    fn pattern(&mut self, pattern: &str) -> Result<u64, String> {
        let positions = pattern::positions(pattern)?;
        self.budget.pattern(positions)?;
        Ok(positions)
    }

    /// A value is held against one member after the other, unless all are texts.
    fn listed(&mut self, keyword: &str, value: &'a Value, sum: &mut Sum) -> Result<(), String> {
        let members = if keyword == "enum" { value.as_array().map(Vec::as_slice) } else { None };
        let members = members.unwrap_or(std::slice::from_ref(value));
        let size: u64 = members.iter().map(cost::size).sum();
        self.budget.values(size)?;
        let composite = members.iter().any(|member| member.is_array() || member.is_object());
        if composite && size > LISTED {
            return Err(format!("has a {keyword} of more than {LISTED} values that are not all scalars"));
        }
        let hashed = members.iter().all(|member| member.is_string() || member.is_null());
        sum.cost.and(&Cost::value(if hashed { size.min(10) } else { size }));
        Ok(())
    }

    fn reference(&mut self, reference: &'a str, depth: usize) -> Result<Cost, String> {
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
