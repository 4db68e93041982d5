//! `installed_releases` and `release_installations`: evidence of what was installed,
//! kept in step with the operations and outliving them (spec E.5).

use sqlx::AnyConnection;

use super::codec::{self, Cells};
use crate::domain::{
    digest::Sha256Digest,
    error::Error,
    id::ConnectorKey,
    operation::{Operation, OperationKind, OperationState},
    release::Release,
};

const ADD: &str = "INSERT INTO release_installations (connector_key, release_digest, document) \
     VALUES ($1, $2, $3) ON CONFLICT (connector_key, release_digest) DO NOTHING";
const POINT: &str = "INSERT INTO installed_releases (connector_key, release_digest, document) \
     VALUES ($1, $2, $3) ON CONFLICT (connector_key) \
     DO UPDATE SET release_digest = excluded.release_digest, document = excluded.document";
const FORGET_INSTALLATIONS: &str = "DELETE FROM release_installations WHERE connector_key = $1";
const FORGET_POINTER: &str = "DELETE FROM installed_releases WHERE connector_key = $1";
const FROM_INSTALLATIONS: &str = "SELECT connector_key, document FROM release_installations \
     WHERE connector_key = $1 AND release_digest = $2";
const FROM_POINTER: &str = "SELECT connector_key, document FROM installed_releases \
     WHERE connector_key = $1 AND release_digest = $2";

/// Does for the evidence what saving `operation` asks for: a received release is
/// noted, a completed install becomes the current one, a completed removal takes
/// everything of its connector away.
///
/// `noted` says that the stored operation had its receipt before, and so its evidence.
///
/// # Errors
/// [`crate::domain::error::ErrorCode::InstallFailed`] when an install has a receipt
/// but not the release it was accepted for.
pub(super) async fn follow(
    conn: &mut AnyConnection,
    operation: &Operation,
    noted: bool,
) -> Result<(), Error> {
    let completed = operation.state == OperationState::Completed;
    match (operation.kind, &operation.connector_key) {
        (OperationKind::Install, Some(key)) if operation.execution.release_receipt.is_some() => {
            let release = operation.frozen_release()?;
            let digest = release.release_digest.to_string();
            let document = codec::document("release_installations", &digest, release)?;
            for statement in [(!noted).then_some(ADD), completed.then_some(POINT)].into_iter().flatten() {
                sqlx::query(statement)
                    .bind(key.as_str())
                    .bind(&digest)
                    .bind(&document)
                    .execute(&mut *conn)
                    .await?;
            }
        }
        (OperationKind::Uninstall, Some(key)) if completed => {
            for statement in [FORGET_INSTALLATIONS, FORGET_POINTER] {
                sqlx::query(statement).bind(key.as_str()).execute(&mut *conn).await?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The release of a digest: among the received ones, then by the pointer.
pub(super) async fn get(
    conn: &mut AnyConnection,
    key: &ConnectorKey,
    digest: &Sha256Digest,
) -> Result<Option<Release>, Error> {
    for (table, statement) in
        [("release_installations", FROM_INSTALLATIONS), ("installed_releases", FROM_POINTER)]
    {
        let row = sqlx::query(statement)
            .bind(key.as_str())
            .bind(digest.to_string())
            .fetch_optional(&mut *conn)
            .await?;
        if let Some(row) = row {
            return Cells::keyed(table, &row, "connector_key")?.document("document").map(Some);
        }
    }
    Ok(None)
}
