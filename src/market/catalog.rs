//! Browsing: categories, and pages that are stored as they are seen, so that
//! what is on a page can be installed at once (spec C.2, C.3).

use std::{
    collections::HashSet,
    sync::atomic::{AtomicU64, Ordering},
};

use tokio::sync::{Mutex, MutexGuard};

use super::{application::Application, tx::transaction};
use crate::domain::{
    catalog::{
        CatalogCategory, CatalogEntry, CatalogListing, CatalogPage, CatalogPageQuery, InstallationFilter,
        SourcePage, SourcePageQuery,
    },
    compatibility::Compatibility,
    connector::Connector,
    error::{Error, ErrorCode},
    event::ChangedEvent,
    operation::OperationScope,
    revision::Revision,
};

/// Keeps a slow, older answer of the source from overwriting a newer one. A fetch
/// takes its number before the source is asked.
#[derive(Debug, Default)]
pub(super) struct CatalogFence {
    taken: AtomicU64,
    applied: Mutex<u64>,
}

impl CatalogFence {
    /// The number of a fetch that begins now.
    pub(super) fn take(&self) -> u64 {
        self.taken.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Waits for its turn to apply. None when a newer fetch was applied already.
    pub(super) async fn enter(&self, number: u64) -> Option<MutexGuard<'_, u64>> {
        let applied = self.applied.lock().await;
        (number >= *applied).then_some(applied)
    }
}

impl Application {
    /// All categories of the catalog.
    ///
    /// # Errors
    /// The source's; [`ErrorCode::InvalidManifest`] for a category that breaks a rule.
    pub async fn categories(&self) -> Result<Vec<CatalogCategory>, Error> {
        let categories = self.config.catalog.categories().await.map_err(source_error)?;
        let mut seen = HashSet::new();
        for category in &categories {
            if category.category_id.trim().is_empty() || category.item_count < 0 {
                return Err(Error::invalid_manifest(
                    "the catalog holds a category without an id or with a negative count",
                ));
            }
            if !seen.insert(category.category_id.as_str()) {
                return Err(Error::invalid_manifest(format!(
                    "the catalog holds category {:?} twice",
                    category.category_id
                )));
            }
        }
        Ok(categories)
    }

    /// One page of the catalog, as stored after it was seen.
    ///
    /// # Errors
    /// The source's; [`ErrorCode::InvalidManifest`] for a page that breaks a rule
    /// or a source that does not get on.
    pub async fn catalog_page(
        &self,
        scope: &OperationScope,
        query: &CatalogPageQuery,
    ) -> Result<CatalogPage, Error> {
        let number = self.catalog_fence.take();
        let mut page = if query.filter().is_none() {
            self.source_page(number, query.section_id(), query.page_size(), query.page_token()).await?
        } else {
            self.filtered_page(number, query).await?
        };
        for item in &mut page.items {
            item.connector = self.seen_by(scope, item.connector.clone()).await?;
        }
        Ok(page)
    }

    /// Goes on over the source's pages until enough connectors pass the filter.
    async fn filtered_page(&self, number: u64, query: &CatalogPageQuery) -> Result<CatalogPage, Error> {
        let Some(InstallationFilter::NotInstalled) = query.filter() else {
            return Err(Error::invalid_request("the installation filter is unknown"));
        };
        let wanted = usize::try_from(query.page_size()).unwrap_or(usize::MAX);
        let mut token = query.page_token().to_owned();
        let mut seen = HashSet::from([token.clone()]);
        let mut items: Vec<CatalogListing> = Vec::new();
        let mut revision = Revision::default();
        loop {
            let missing = u32::try_from(wanted - items.len()).unwrap_or(u32::MAX);
            let page = self.source_page(number, query.section_id(), missing, &token).await?;
            revision = revision.max(page.revision);
            items.extend(
                page.items.into_iter().filter(|item| !item.connector.installation.has_installed_artifact()),
            );
            if items.len() >= wanted || page.next_page_token.is_empty() {
                let section_id = query.section_id().to_owned();
                return Ok(CatalogPage {
                    section_id,
                    items,
                    next_page_token: page.next_page_token,
                    revision,
                });
            }
            if !seen.insert(page.next_page_token.clone()) {
                return Err(Error::invalid_manifest(
                    "the catalog's pages do not get on: it named the same next page twice",
                ));
            }
            token = page.next_page_token;
        }
    }

    async fn source_page(
        &self,
        number: u64,
        section_id: &str,
        page_size: u32,
        page_token: &str,
    ) -> Result<CatalogPage, Error> {
        let query = SourcePageQuery {
            section_id: section_id.to_owned(),
            page_size,
            page_token: page_token.to_owned(),
        };
        let page = self.config.catalog.page(&query).await.map_err(source_error)?;
        check_page(section_id, &page)?;
        let seen: Vec<(&CatalogEntry, Compatibility)> =
            page.entries.iter().map(|entry| (entry, self.compatibility(&entry.release.manifest))).collect();
        let applied = match self.catalog_fence.enter(number).await {
            None => None,
            Some(mut applied) => {
                let revision = self.store_seen(&seen).await?;
                *applied = number;
                Some(revision)
            }
        };
        let revision = match applied {
            Some(revision) => revision,
            None => self.config.store.snapshot().await?.revision,
        };
        let mut items = Vec::with_capacity(page.entries.len());
        for entry in page.entries {
            match self.config.store.connector(&entry.release.connector_key).await? {
                Some(connector) if !connector.compatibility.is_removed_from_catalog() => {
                    let CatalogEntry { category_id, featured, .. } = entry;
                    items.push(CatalogListing { category_id, featured, connector });
                }
                // Delisted, or never stored because a newer fetch was applied first.
                _ => {}
            }
        }
        let (section_id, next_page_token) = (page.section_id, page.next_page_token);
        Ok(CatalogPage { section_id, items, next_page_token, revision })
    }

    /// Stores what a page shows and is new. A page never removes anything.
    async fn store_seen(&self, seen: &[(&CatalogEntry, Compatibility)]) -> Result<Revision, Error> {
        transaction!(self.config.store, |tx| {
            let mut changed = Vec::new();
            for (entry, compatibility) in seen {
                let stored = tx.connector(&entry.release.connector_key).await?;
                changed.extend(offered(stored, &entry.release, compatibility));
            }
            if changed.is_empty() {
                tx.revision()
            } else {
                let revision = tx.advance_revision();
                for connector in &mut changed {
                    connector.revision = revision;
                    tx.save_connector(connector).await?;
                }
                tx.enqueue_changed(&ChangedEvent { revision, ..ChangedEvent::default() }).await?;
                revision
            }
        })
    }
}

/// The connector with this release on offer; none when that is nothing new.
pub(super) fn offered(
    stored: Option<Connector>,
    release: &crate::domain::release::Release,
    compatibility: &Compatibility,
) -> Option<Connector> {
    match stored {
        None => Some(Connector::listed(release.clone(), compatibility.clone(), Revision::default())),
        Some(stored) if stored.release == *release && stored.compatibility == *compatibility => None,
        Some(mut stored) => {
            stored.offer(release.clone(), compatibility.clone());
            Some(stored)
        }
    }
}

fn check_page(section_id: &str, page: &SourcePage) -> Result<(), Error> {
    if page.section_id != section_id {
        return Err(Error::invalid_manifest(format!(
            "the catalog answered section {:?} when asked for {section_id:?}",
            page.section_id
        )));
    }
    let mut seen = HashSet::new();
    for entry in &page.entries {
        let key = &entry.release.connector_key;
        if entry.category_id.trim().is_empty() {
            return Err(Error::invalid_manifest(format!("the catalog lists {key} without a category")));
        }
        if !seen.insert(key) {
            return Err(Error::invalid_manifest(format!("the catalog lists {key} twice on one page")));
        }
        entry.release.validate()?;
    }
    Ok(())
}

/// A source's error with a meaning for callers of the market keeps its code;
/// everything else says that the source could not be used.
pub(super) fn source_error(error: Error) -> Error {
    match error.code {
        ErrorCode::InvalidManifest
        | ErrorCode::InvalidRequest
        | ErrorCode::NotFound
        | ErrorCode::Incompatible
        | ErrorCode::UnsupportedImplementation
        | ErrorCode::UpstreamUnavailable
        | ErrorCode::Unavailable => error,
        _ => Error::new(
            ErrorCode::UpstreamUnavailable,
            format!("the catalog could not be read: {}", error.message),
        )
        .with_cause(error),
    }
}
