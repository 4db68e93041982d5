//! What checking a document against a schema can cost, counted and not measured.
//!
//! No reference of an accepted schema leads back to itself, so each subschema looks
//! at one level of a document. A schema's cost is therefore a list of what it spends
//! on each value of each level, and a document's profile is what it has there.

use serde_json::Value;

/// Text of so many bytes costs as much as a value.
const BYTES_PER_UNIT: u64 = 64;
/// Positions of patterns that are tried on bytes of text, for one unit.
const STEPS_PER_UNIT: u64 = 4;

/// What a schema spends on one level of a document.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// On each value.
    value: u64,
    /// On each byte of text: positions of patterns.
    byte: u64,
    /// On each pair of items that are compared.
    pair: u64,
}

/// What a schema spends, from the value it is held against downward.
#[derive(Clone, Debug, Default)]
pub(super) struct Cost {
    levels: Vec<Level>,
    /// How deep choices lie in one another: each is tried again when it fails.
    pub(super) choices: u64,
}

impl Cost {
    /// Spends `units` on each value.
    pub(super) fn value(units: u64) -> Self {
        Self { levels: vec![Level { value: units, ..Level::default() }], choices: 0 }
    }

    /// Spends `positions` on each byte of text.
    pub(super) fn byte(positions: u64) -> Self {
        Self { levels: vec![Level { value: 1, byte: positions, pair: 0 }], choices: 0 }
    }

    /// Compares items with one another.
    pub(super) fn pair() -> Self {
        Self { levels: vec![Level { value: 4, byte: 0, pair: 1 }], choices: 0 }
    }

    /// The same, on what lies `depth` below.
    pub(super) fn below(mut self, depth: usize) -> Self {
        self.levels.splice(0..0, std::iter::repeat_n(Level::default(), depth));
        self
    }

    /// Both are spent.
    pub(super) fn and(&mut self, other: &Self) {
        self.merge(other, u64::saturating_add);
    }

    /// Either is spent, never both.
    pub(super) fn or(&mut self, other: &Self) {
        self.merge(other, u64::max);
    }

    fn merge(&mut self, other: &Self, of: impl Fn(u64, u64) -> u64) {
        if self.levels.len() < other.levels.len() {
            self.levels.resize(other.levels.len(), Level::default());
        }
        for (own, theirs) in self.levels.iter_mut().zip(&other.levels) {
            own.value = of(own.value, theirs.value);
            own.byte = of(own.byte, theirs.byte);
            own.pair = of(own.pair, theirs.pair);
        }
        self.choices = self.choices.max(other.choices);
    }

    /// Everything is spent `times` times.
    pub(super) fn times(&mut self, times: u64) {
        for level in &mut self.levels {
            level.value = level.value.saturating_mul(times);
            level.byte = level.byte.saturating_mul(times);
            level.pair = level.pair.saturating_mul(times);
        }
    }

    /// The most that is spent on one value without text.
    pub(super) fn dearest(&self) -> u64 {
        self.levels.iter().map(|level| level.value).max().unwrap_or(0)
    }

    /// What a document with this profile costs.
    pub(super) fn of(&self, profile: &Profile) -> u64 {
        let each = self.levels.iter().zip(&profile.levels).map(|(level, has)| {
            let bytes = level.byte.saturating_mul(has.bytes) / STEPS_PER_UNIT;
            let values = level.value.saturating_mul(has.values + has.bytes / BYTES_PER_UNIT);
            values.saturating_add(bytes).saturating_add(level.pair.saturating_mul(has.pairs))
        });
        each.fold(profile.total, u64::saturating_add)
    }

    /// The most that a document of so many bytes of JSON can cost.
    pub(super) fn of_text(&self, bytes: usize) -> u64 {
        let bytes = bytes as u64;
        let most = |each: fn(&Level) -> u64| self.levels.iter().map(each).max().unwrap_or(0);
        let values = most(|level| level.value).saturating_mul(bytes / 2 + 1);
        let text = most(|level| level.byte).saturating_mul(bytes) / STEPS_PER_UNIT;
        let pairs = most(|level| level.pair).saturating_mul(bytes.saturating_mul(bytes));
        values.saturating_add(text).saturating_add(pairs).saturating_add(bytes)
    }
}

/// What a document has on one level.
#[derive(Clone, Copy, Debug, Default)]
struct Has {
    values: u64,
    /// Of texts, and of the names of an object's members.
    bytes: u64,
    /// Pairs of items, and everything below an array.
    pairs: u64,
}

/// What a document has on each level.
#[derive(Debug, Default)]
pub(super) struct Profile {
    levels: Vec<Has>,
    total: u64,
}

impl Profile {
    /// Profiles a document; nothing when it has more than `most` values.
    pub(super) fn of(document: &Value, most: u64) -> Option<Self> {
        let mut profile = Self::default();
        profile.add(document, 0, most).then_some(profile)
    }

    fn add(&mut self, value: &Value, depth: usize, most: u64) -> bool {
        if self.levels.len() <= depth {
            self.levels.resize(depth + 1, Has::default());
        }
        let before = self.total;
        self.total += 1;
        if self.total > most {
            return false;
        }
        self.levels[depth].values += 1;
        match value {
            Value::String(text) => self.text(text, depth),
            Value::Array(items) => {
                if !items.iter().all(|item| self.add(item, depth + 1, most)) {
                    return false;
                }
                // Scalars are hashed with a secret; what holds others can be made to collide.
                let composite =
                    items.iter().filter(|item| item.is_array() || item.is_object()).count() as u64;
                self.levels[depth].pairs += composite * composite + 4 * (self.total - before);
            }
            Value::Object(members) => {
                for (name, member) in members {
                    self.text(name, depth);
                    if !self.add(member, depth + 1, most) {
                        return false;
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        true
    }

    fn text(&mut self, text: &str, depth: usize) {
        self.levels[depth].bytes += text.len() as u64;
        self.total += text.len() as u64 / BYTES_PER_UNIT;
    }
}

/// What holding a value against another can cost.
pub(super) fn size(value: &Value) -> u64 {
    let text = |text: &str| text.len() as u64 / BYTES_PER_UNIT;
    1 + match value {
        Value::String(own) => text(own),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(members) => members.iter().map(|(name, member)| text(name) + size(member)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}
