//! Several catalogs as one.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;

use super::{
    document::{CATALOG_SCHEMA_VERSION, StaticCatalogDocument},
    pages::Edition,
    source::{Freshness, StaticCatalog},
};
use crate::{
    artifacts::fetch::ArtifactFetcher,
    domain::{
        catalog::{CatalogCategory, CatalogContents, SourcePage, SourcePageQuery},
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        id::ConnectorKey,
        release::Release,
    },
    ports::CatalogSource,
};

/// Several catalogs as one. Categories of one id become one category; a connector
/// that two catalogs list is refused, because neither is the right one. A
/// catalog that cannot be read fails the whole: what it lists would otherwise
/// count as removed.
#[derive(Debug)]
pub struct CombinedCatalog {
    catalogs: Vec<Arc<StaticCatalog>>,
    merged: Mutex<Option<Arc<Edition>>>,
    /// Which catalog listed a release, by release digest.
    origins: Mutex<HashMap<Sha256Digest, usize>>,
}

impl CombinedCatalog {
    /// Combines catalogs.
    #[must_use]
    pub fn new(catalogs: Vec<Arc<StaticCatalog>>) -> Self {
        Self { catalogs, merged: Mutex::new(None), origins: Mutex::new(HashMap::new()) }
    }

    async fn edition(&self, freshness: Freshness) -> Result<Arc<Edition>, Error> {
        let reads = self.catalogs.iter().map(|catalog| catalog.edition(freshness));
        let editions =
            futures::future::join_all(reads).await.into_iter().collect::<Result<Vec<_>, Error>>()?;
        self.remember(&editions);
        let marks: String = editions.iter().map(|edition| format!("{}\n", edition.digest())).collect();
        let digest = Sha256Digest::of(marks.as_bytes());
        let mut merged = self.merged.lock().unwrap_or_else(PoisonError::into_inner);
        match &*merged {
            Some(merged) if merged.digest() == digest => Ok(Arc::clone(merged)),
            _ => {
                let edition = Arc::new(Edition::of(self.merge(&editions)?, digest));
                *merged = Some(Arc::clone(&edition));
                Ok(edition)
            }
        }
    }

    fn merge(&self, editions: &[Arc<Edition>]) -> Result<StaticCatalogDocument, Error> {
        let mut categories: Vec<CatalogCategory> = Vec::new();
        let mut entries = Vec::new();
        let mut listed: BTreeMap<ConnectorKey, usize> = BTreeMap::new();
        for (at, edition) in editions.iter().enumerate() {
            for category in &edition.document().categories {
                match categories.iter_mut().find(|known| known.category_id == category.category_id) {
                    None => categories.push(category.clone()),
                    Some(known) if known.kind == category.kind => known.item_count += category.item_count,
                    Some(_) => {
                        return Err(Error::invalid_manifest(format!(
                            "catalog {} and another one disagree on what kind of category {:?} is",
                            self.catalogs[at].name(),
                            category.category_id
                        )));
                    }
                }
            }
            for entry in &edition.document().entries {
                let key = &entry.release.connector_key;
                if let Some(&first) = listed.get(key) {
                    return Err(Error::invalid_manifest(format!(
                        "connector {key} is listed by two catalogs, {} and {}; remove it from one of them",
                        self.catalogs[first].name(),
                        self.catalogs[at].name()
                    )));
                }
                listed.insert(key.clone(), at);
                entries.push(entry.clone());
            }
        }
        let revisions: Vec<&str> =
            editions.iter().map(|edition| edition.document().source_revision.as_str()).collect();
        let source_revision = match revisions.as_slice() {
            [single] => (*single).to_owned(),
            several => Sha256Digest::of_canonical_json(&several)?.to_string(),
        };
        Ok(StaticCatalogDocument {
            schema_version: CATALOG_SCHEMA_VERSION.to_owned(),
            source_revision,
            categories,
            entries,
        })
    }

    fn remember(&self, editions: &[Arc<Edition>]) {
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, edition) in editions.iter().enumerate() {
            for entry in &edition.document().entries {
                origins.insert(entry.release.release_digest, at);
            }
        }
    }

    /// The catalog that listed a release, as far as documents at hand tell; after
    /// a restart they are read once.
    async fn origin(&self, release: &Release) -> Option<usize> {
        let known = |digest| self.origins.lock().unwrap_or_else(PoisonError::into_inner).get(digest).copied();
        if let Some(at) = known(&release.release_digest) {
            return Some(at);
        }
        for (at, catalog) in self.catalogs.iter().enumerate() {
            let edition = match catalog.held().await {
                Some(edition) => Some(edition),
                None => catalog.edition(Freshness::Recent).await.ok(),
            };
            let lists = |edition: Arc<Edition>| {
                edition
                    .document()
                    .entries
                    .iter()
                    .any(|one| one.release.release_digest == release.release_digest)
            };
            if edition.is_some_and(lists) {
                self.origins
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(release.release_digest, at);
                return Some(at);
            }
        }
        None
    }
}

#[async_trait]
impl CatalogSource for CombinedCatalog {
    async fn categories(&self) -> Result<Vec<CatalogCategory>, Error> {
        Ok(self.edition(Freshness::Recent).await?.categories())
    }

    async fn page(&self, query: &SourcePageQuery) -> Result<SourcePage, Error> {
        self.edition(Freshness::Recent).await?.page(query)
    }

    async fn contents(&self) -> Result<CatalogContents, Error> {
        Ok(self.edition(Freshness::Now).await?.contents())
    }
}

#[async_trait]
impl ArtifactFetcher for CombinedCatalog {
    /// A release that a catalog lists comes from that catalog and no other. One
    /// that none lists any more is looked for in all of them.
    async fn fetch(&self, release: &Release, destination: &Path) -> Result<(), Error> {
        if let Some(at) = self.origin(release).await {
            return self.catalogs[at].fetch(release, destination).await;
        }
        let mut failure: Option<Error> = None;
        for catalog in &self.catalogs {
            match catalog.fetch(release, destination).await {
                Ok(()) => return Ok(()),
                // One that may heal says more than one that will not.
                Err(error) if failure.as_ref().is_none_or(|first| error.retryable && !first.retryable) => {
                    failure = Some(error);
                }
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(|| {
            Error::new(
                ErrorCode::ArtifactUnavailable,
                format!("{}: there is no catalog to fetch it from", release.release_id),
            )
            .with_retryable(false)
        }))
    }
}
