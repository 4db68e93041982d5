//! The market, scenario by scenario: a number after `s` is one of section J of the
//! specification. The rest of the world is scripted, but the store is a real
//! database: every scenario is told once and runs on each kind there is.

/// Makes the named `async fn`s of a module tests, on SQLite and on PostgreSQL.
/// [`World`](world::World) opens the database that the test is for.
macro_rules! on_every_store {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $name() {
                    $crate::market::world::Database::Sqlite.during(super::$name()).await;
                }
            )+
        }

        mod postgres {
            $(
                #[tokio::test]
                async fn $name() {
                    $crate::market::world::Database::Postgres.during(super::$name()).await;
                }
            )+
        }
    };
}

mod acceptance;
mod accounts;
mod authorizing;
mod backlog;
mod binding;
mod browsing;
mod calibrating;
mod contended;
mod converging;
mod disconnecting;
mod executing;
mod fakes;
mod installing;
mod projecting;
mod provider;
mod reads;
mod reconciling;
mod recovering;
mod refreshing;
mod refusals;
mod settling;
mod truth;
mod uninstalling;
mod world;
