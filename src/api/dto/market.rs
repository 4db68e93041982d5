//! Snapshot, categories and pages on the wire.

use serde::{Deserialize, Serialize};

use super::{Connector, Operation};
use crate::domain::{
    catalog::{CatalogCategory, CatalogListing, CatalogPage, CatalogState, CategoryKind},
    operation::{OperationKind, Visibility},
    snapshot::PublicSnapshot,
};

/// Everything visible at one revision.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The revision.
    pub revision: u64,
    /// How far the catalog can be trusted.
    pub catalog_state: CatalogState,
    /// Where to go on reading events.
    pub event_cursor: i64,
    /// The connectors, by key.
    pub connectors: Vec<Connector>,
    /// The operations, by id.
    pub operations: Vec<Operation>,
}

impl From<PublicSnapshot> for Snapshot {
    fn from(snapshot: PublicSnapshot) -> Self {
        let connectors = snapshot.connectors.into_iter();
        // The market hides private operations already; this is the second lock.
        let public = snapshot.operations.into_iter().filter(|operation| {
            operation.kind != OperationKind::ReconcileRuntime && operation.visibility == Visibility::Account
        });
        Self {
            revision: snapshot.revision.0,
            catalog_state: snapshot.catalog_state,
            event_cursor: snapshot.event_cursor,
            connectors: connectors.map(|(connector, runtime)| Connector::new(connector, runtime)).collect(),
            operations: public.map(Operation::from).collect(),
        }
    }
}

/// The catalog's categories.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Categories {
    /// As the source orders them.
    pub categories: Vec<Category>,
}

impl From<Vec<CatalogCategory>> for Categories {
    fn from(categories: Vec<CatalogCategory>) -> Self {
        Self { categories: categories.into_iter().map(Category::from).collect() }
    }
}

/// One category.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Category {
    /// Its id, which is the `sectionId` of a page.
    pub category_id: String,
    /// What it is.
    pub kind: CategoryKind,
    /// Its place among the others.
    pub sort_order: i32,
    /// How many connectors it holds.
    pub item_count: i64,
    /// Its name in Chinese.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name_zh: Option<String>,
    /// Its name in English.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name_en: Option<String>,
}

impl From<CatalogCategory> for Category {
    fn from(category: CatalogCategory) -> Self {
        Self {
            category_id: category.category_id,
            kind: category.kind,
            sort_order: category.sort_order,
            item_count: category.item_count,
            display_name_zh: category.display_name_zh,
            display_name_en: category.display_name_en,
        }
    }
}

/// One page of the catalog.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// The section.
    pub section_id: String,
    /// Its connectors.
    pub items: Vec<Listing>,
    /// Where the next page starts; left out at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
    /// The revision that holds the page.
    pub revision: u64,
}

impl From<CatalogPage> for Page {
    fn from(page: CatalogPage) -> Self {
        Self {
            section_id: page.section_id,
            items: page.items.into_iter().map(Listing::from).collect(),
            next_page_token: Some(page.next_page_token).filter(|token| !token.is_empty()),
            revision: page.revision.0,
        }
    }
}

/// One connector on a page.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listing {
    /// The category it stands in.
    pub category_id: String,
    /// Whether the catalog puts it forward.
    pub featured: bool,
    /// The connector.
    pub connector: Connector,
}

impl From<CatalogListing> for Listing {
    fn from(listing: CatalogListing) -> Self {
        Self {
            category_id: listing.category_id,
            featured: listing.featured,
            connector: Connector::new(listing.connector, None),
        }
    }
}
