//! Credentials by digest, and the record of the peppers with which they were created.
//!
//! The owner of a credential is not stored in the account's space, so that a Redis cluster distributes the owners. The
//! record of the owner is written before the key. A credential without a key is refused like an unknown credential.

mod management_keys;
mod operator_keys;

use domain::digest::Digest;
use key_service_ledger::{StoreError, names::RecordName, stored::PepperRecord};
use records::Space;

use crate::{
    data::Credential,
    store::{base::Store, layout},
};

impl Store {
    /// Finds the credential with this digest. A credential's owner and number never change, so callers may cache them.
    /// Credentials of revoked keys are found too. A credential that no longer works after a rotation is still found,
    /// but the ledger refuses it. The key's next rotation removes it, unless it is the key's first credential.
    pub async fn find_credential(&self, digest: Digest) -> Result<Option<Credential>, StoreError> {
        self.read().get(&layout::credentials(&digest), name_of(&digest)).await
    }

    /// Reads the record of the peppers with which credentials were created ([`domain::pepper_record`]), if there is
    /// one.
    pub async fn pepper_record(&self) -> Result<Option<String>, StoreError> {
        let (space, name) = pepper_place();
        Ok(self.read().get::<PepperRecord>(&space, name).await?.map(|peppers| peppers.record))
    }

    /// Replaces the record of peppers if it still equals `seen`. Returns whether it was replaced.
    pub async fn replace_pepper_record(
        &self,
        seen: Option<String>,
        record: String,
    ) -> Result<bool, StoreError> {
        let (space, name) = pepper_place();
        self.change(&space, |view| {
            let is_as_seen = view.get::<PepperRecord>(&name)?.map(|peppers| peppers.record) == seen;
            if is_as_seen {
                view.put(&name, PepperRecord { record: record.clone() });
            }
            Ok(is_as_seen)
        })
        .await
    }

    /// Writes a credential. Repeating this changes nothing. A digest keeps its first owner.
    pub(crate) async fn put_credential(
        &self,
        digest: &Digest,
        credential: Credential,
    ) -> Result<(), StoreError> {
        self.change_credential(digest, |present| present.unwrap_or(credential)).await.map(drop)
    }

    /// Passes the stored credential to `decide`, and writes the credential that it returns. Returns this credential.
    pub(crate) async fn change_credential(
        &self,
        digest: &Digest,
        mut decide: impl FnMut(Option<Credential>) -> Credential + Send,
    ) -> Result<Credential, StoreError> {
        let name = name_of(digest);
        self.change(&layout::credentials(digest), |view| {
            view.presume_absent(&name);
            let credential = decide(view.get(&name)?);
            view.put(&name, credential);
            Ok(credential)
        })
        .await
    }

    /// Removes a credential that no key accepts, if it has not changed. If the store cannot be reached, the credential
    /// stays, but it is refused anyway.
    pub(crate) async fn forget_credential(&self, digest: &Digest, credential: Credential) {
        let (space, name) = (layout::credentials(digest), name_of(digest));
        let forgotten = self.note(&space, |view| {
            if view.get(&name)? == Some(credential) {
                view.remove(&name);
            }
            Ok(())
        });
        if let Err(error) = forgotten.await {
            tracing::warn!(%error, "cannot remove a credential that no key accepts; it is refused anyway");
        }
    }
}

fn name_of(digest: &Digest) -> RecordName<Credential> {
    layout::name(layout::CREDENTIALS, *digest.as_bytes())
}

fn pepper_place() -> (Space, RecordName<PepperRecord>) {
    (Space::new("installation"), layout::name(layout::INSTALLATION, *b"p"))
}
