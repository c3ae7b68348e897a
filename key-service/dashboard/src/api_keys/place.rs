//! Decides which group a form may put a key in.

use domain::{access::Effect, group::BadGroup, key::KeyPatch};
use key_service_management::Error;
use key_service_page::{
    app::App,
    entry::Fault,
    failure::{Failure, bad_group},
    session::Viewer,
};

/// Checks the group that a form puts a key in. A lead's new key without a group goes into the lead's own group.
pub(crate) async fn place(
    app: &App,
    viewer: &Viewer,
    settings: &mut KeyPatch,
    is_new: bool,
) -> Result<Option<Fault>, Failure> {
    let governor = viewer.signed_in.governor(Effect::Write);
    match app.management.place_key(&governor, settings, is_new).await {
        Ok(()) => Ok(None),
        Err(Error::Refused(_)) => Ok(Some(Fault::of("group_id", bad_group(BadGroup::Unknown)))),
        Err(Error::Store(unavailable)) => Err(unavailable.into()),
    }
}
