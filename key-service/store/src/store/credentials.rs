//! Credentials by digest, and the record of the peppers that they were made with.
//!
//! The owner of a credential lies in a space apart from the account, so that a cluster spreads the owners. It is
//! written before the key. The ledger refuses a credential whose key does not exist, as one that nobody knows.

mod management_keys;

use domain::digest::Digest;
use key_service_ledger::{
    StoreError,
    messages::{self, PepperRecord},
    view::View,
};
use records::{Name, Space};
use shared::ids::{AccountId, KeyId, ManagementKeyId, Principal};

use crate::{
    data::Credential,
    store::{base::Store, layout},
};

/// Classes of credentials, as their records number them.
const API_KEY: u32 = 0;
const MANAGEMENT_KEY: u32 = 1;

impl Store {
    /// Finds the credential with this digest. Owner and number never change, so callers may cache them. A credential of
    /// a revoked key is found too. The ledger refuses a credential that a rotation ended; the key's next rotation
    /// forgets it, unless it is the first one.
    pub async fn find_credential(&self, digest: Digest) -> Result<Option<Credential>, StoreError> {
        let found =
            self.read().get::<messages::Credential>(&layout::credentials(&digest), name_of(&digest)).await?;
        found.as_ref().map(read).transpose()
    }

    /// Reads the record of the peppers that credentials were made with ([`domain::pepper_record`]), if there is one.
    pub async fn pepper_record(&self) -> Result<Option<String>, StoreError> {
        let (space, name) = pepper_place();
        Ok(self.read().get::<PepperRecord>(&space, name).await?.map(|peppers| peppers.record))
    }

    /// Replaces the record of peppers, if it is still `seen`. Returns whether it did.
    pub async fn replace_pepper_record(
        &self,
        seen: Option<String>,
        record: String,
    ) -> Result<bool, StoreError> {
        let (space, name) = pepper_place();
        self.change(&space, |view| {
            let is_as_seen = view.get::<PepperRecord>(&name)?.map(|peppers| peppers.record) == seen;
            if is_as_seen {
                view.put(&name, &PepperRecord { record: record.clone() });
            }
            Ok(is_as_seen)
        })
        .await
    }

    /// Records a credential; repeating it changes nothing. A digest that has an owner keeps it.
    pub(crate) async fn put_credential(
        &self,
        digest: &Digest,
        credential: Credential,
    ) -> Result<(), StoreError> {
        self.change_credential(digest, |present| present.unwrap_or(credential)).await.map(drop)
    }

    /// Writes a credential as `decide` says, which gets the present one, if there is one. Returns the credential that
    /// is stored then.
    pub(crate) async fn change_credential(
        &self,
        digest: &Digest,
        mut decide: impl FnMut(Option<Credential>) -> Credential + Send,
    ) -> Result<Credential, StoreError> {
        let name = name_of(digest);
        self.change(&layout::credentials(digest), |view| {
            view.presume_absent(&name);
            let credential = decide(present(view, &name)?);
            view.put(&name, &write(credential));
            Ok(credential)
        })
        .await
    }

    /// Forgets a credential that no key accepts, if it is still this one. If the store is not reached, it stays, and is
    /// refused anyway.
    pub(crate) async fn forget_credential(&self, digest: &Digest, credential: Credential) {
        let (space, name) = (layout::credentials(digest), name_of(digest));
        let forgotten = self.note(&space, |view| {
            if present(view, &name)? == Some(credential) {
                view.remove(&name);
            }
            Ok(())
        });
        if let Err(error) = forgotten.await {
            tracing::warn!(%error, "a credential that no key accepts is left behind");
        }
    }
}

fn present(view: &mut View, name: &Name) -> Result<Option<Credential>, StoreError> {
    view.get::<messages::Credential>(name)?.as_ref().map(read).transpose()
}

fn name_of(digest: &Digest) -> Name {
    layout::name(layout::CREDENTIALS, *digest.as_bytes())
}

fn pepper_place() -> (Space, Name) {
    (Space::new("installation"), layout::name(layout::INSTALLATION, *b"p"))
}

fn write(Credential { owner, number }: Credential) -> messages::Credential {
    let (class, account, owner) = match owner {
        Principal::ApiKey(account, key) => (API_KEY, account, *key.as_bytes()),
        Principal::ManagementKey(account, key) => (MANAGEMENT_KEY, account, *key.as_bytes()),
    };
    messages::Credential { class, account: account.as_bytes().to_vec(), owner: owner.to_vec(), number }
}

fn read(credential: &messages::Credential) -> Result<Credential, StoreError> {
    let messages::Credential { class, account, owner, number } = credential;
    let account = AccountId::from_slice(account);
    let owner = account.and_then(|account| match *class {
        API_KEY => KeyId::from_slice(owner).map(|key| Principal::ApiKey(account, key)),
        MANAGEMENT_KEY => {
            ManagementKeyId::from_slice(owner).map(|key| Principal::ManagementKey(account, key))
        }
        _ => None,
    });
    let owner = owner.ok_or_else(|| StoreError::Damaged("the owner of a credential".into()))?;
    Ok(Credential { owner, number: *number })
}
