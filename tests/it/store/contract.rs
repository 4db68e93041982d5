//! The contract, on SQLite in memory and in a file, and on PostgreSQL.

use std::sync::Arc;

use portcullis::store::{
    contract::{SqlDatabases, StoreFactory},
    sqlite_url,
};

use super::postgres::server_url;

portcullis::store_contract! {
    sqlite_memory => database("sqlite::memory:").await,
    sqlite_file => database(&sqlite_url(&std::env::temp_dir().join("portcullis.db"))).await,
    postgres => database(&server_url()).await,
}

async fn database(url: &str) -> Arc<dyn StoreFactory> {
    SqlDatabases::beside(url).expect("a place for databases").create().await.expect("an empty database")
}
