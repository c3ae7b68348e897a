//! Tests pages of bills while the store drops the oldest ones.

use std::time::Duration;

use domain::{
    event::Actor,
    key::{ApiKey, KeyPatch},
    search::EntrySearch,
};
use shared::{ids::GenerationId, time::Timestamp};

use crate::{
    generations::Bill,
    nouns::{
        governed::Governed as _,
        listing::{Listed as _, Listing},
    },
    testing::{BEGIN, Office},
};
use key_service_store::store::{
    Ledger as _, Order,
    suite::{capture, hold},
};

#[tokio::test]
async fn a_listing_goes_on_after_a_bill_that_was_dropped_since_the_page_before() {
    let office = Office::keeping(Some(5));
    let (account, _) = office.account("acme").await;
    let by = office.management.by(account, Actor::System);
    let key = ApiKey::create(by, KeyPatch::default(), None).await.unwrap().made.into_inner();
    let at = |n: u64| Timestamp::parse(BEGIN).unwrap().plus(Duration::from_secs(n));
    let generation = |n: u8| GenerationId::new(at(n.into()), [n; 10]);
    for n in 1..=8 {
        let commands = vec![hold(key.id, generation(n), 10, 7), capture(key.id, generation(n), 10)];
        office.store.execute(account, commands, at(n.into())).await.unwrap();
    }
    let page = async |n, order| {
        let listing = Listing { after: Some(generation(n)), order, filter: EntrySearch::default(), limit: 9 };
        let page = Bill::page(&office.management, account, &listing).await;
        page.map(|page| page.items.into_iter().map(|bill| bill.generation).collect::<Vec<_>>())
    };
    assert_eq!(page(1, Order::Ascending).await.unwrap(), [4, 5, 6, 7, 8].map(generation));
    assert_eq!(page(6, Order::Ascending).await.unwrap(), [7, 8].map(generation));
    assert_eq!(page(1, Order::Descending).await.unwrap(), []);
    assert!(page(9, Order::Ascending).await.is_err(), "no bill has ever had this id");
}
