//! What all schemas of a connector may come to together.

/// All schemas, as text.
const BYTES: usize = 2 << 20;
/// Values in all schemas, and in lists that references lead to again.
const VALUES: u64 = 200_000;
/// Subschemas, references followed.
const SUBSCHEMAS: usize = 50_000;
/// Patterns, references followed.
const PATTERNS: usize = 512;
/// Positions of all patterns together.
const POSITIONS: u64 = 32_000;

/// What is left of it.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: usize,
    values: u64,
    subschemas: usize,
    patterns: usize,
    positions: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            bytes: BYTES,
            values: VALUES,
            subschemas: SUBSCHEMAS,
            patterns: PATTERNS,
            positions: POSITIONS,
        }
    }
}

impl Budget {
    pub(super) fn bytes(&mut self, count: usize) -> Result<(), String> {
        self.bytes = self.bytes.checked_sub(count).ok_or_else(|| past("bytes", BYTES as u64))?;
        Ok(())
    }

    pub(super) fn values(&mut self, count: u64) -> Result<(), String> {
        self.values = self.values.checked_sub(count).ok_or_else(|| past("values", VALUES))?;
        Ok(())
    }

    pub(super) fn subschema(&mut self) -> Result<(), String> {
        self.subschemas =
            self.subschemas.checked_sub(1).ok_or_else(|| past("subschemas", SUBSCHEMAS as u64))?;
        Ok(())
    }

    pub(super) fn pattern(&mut self, positions: u64) -> Result<(), String> {
        let patterns = self.patterns.checked_sub(1).ok_or_else(|| past("patterns", PATTERNS as u64))?;
        let left = self.positions.checked_sub(positions);
        self.positions = left.ok_or_else(|| past("positions in patterns", POSITIONS))?;
        self.patterns = patterns;
        Ok(())
    }
}

fn past(what: &str, limit: u64) -> String {
    format!("takes all schemas of the connector together past {limit} {what}")
}
