//! Time and chance, as parameters.

use crate::domain::timestamp::Timestamp;

/// Where the time comes from. A lease is judged by the database's clock instead.
pub trait Clock: Send + Sync {
    /// Now, in UTC.
    fn now(&self) -> Timestamp;
}

/// Where fresh ids come from.
pub trait IdSource: Send + Sync {
    /// 16 random bytes as 32 lower-case hexadecimal digits.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    fn fresh(&self) -> Result<String, crate::domain::error::Error>;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system clock")]
    fn now(&self) -> Timestamp {
        let since_epoch =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }
}

/// The system's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomIds;

impl IdSource for RandomIds {
    fn fresh(&self) -> Result<String, crate::domain::error::Error> {
        let mut bytes = [0_u8; 16];
        getrandom::fill(&mut bytes).map_err(|cause| {
            crate::domain::error::Error::unavailable("the system has no randomness to give")
                .with_cause(cause.to_string())
        })?;
        Ok(hex::encode(bytes))
    }
}
