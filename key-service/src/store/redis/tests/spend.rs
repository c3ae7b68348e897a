//! Sums of days that an earlier version has begun.

use std::time::Duration;

use shared::{ids::GenerationId, tokens::Usage};

use super::{Redis, at, place, spend_one_each};
use crate::store::{
    Books, Groups, Keys, Ledger,
    suite::{act, make_key, nanos, new_group, open_account_with, servers::RedisServer},
};
use domain::{
    key::KeyPatch,
    ledger::{Command, Progress, histories::START},
    usage::Day,
};

#[tokio::test]
async fn margins_of_days_that_an_earlier_version_has_written_are_added_up_and_kept() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    // The day of the bills is over.
    let store = Redis::open(&settings, at(START.plus(Duration::from_hours(48)))).await.unwrap();
    let account = open_account_with(&store, 1, 1_000).await;
    let (alone, grouped) =
        (make_key(&store, account, 1, None).await, make_key(&store, account, 2, None).await);
    let group = new_group(account, 1);
    let id = group.group.id;
    store.create_group(group, None, &act(START)).await.unwrap();
    let to_group = KeyPatch { group: Some(Some(id)), ..KeyPatch::default() };
    store.update_key(account, grouped, to_group, &act(START)).await.unwrap();
    spend_one_each(&store, account, alone, 2).await;
    let progress = Progress { usage: Usage::of(1, 0, 1), cost: nanos(9), upstream_cost: Some(nanos(4)) };
    let bill = Command::Capture {
        key: grouped,
        generation: GenerationId::new(START, [99; 10]),
        model: "Model Max".into(),
        total: progress,
        chargeable: None,
        estimated: false,
    };
    store.execute(account, vec![bill], START).await.unwrap();
    let day = Day::of(START);
    let margins = async || {
        let models = store.margins_by_model(account, day..=day).await.unwrap();
        (models, store.margins_by_group(account, day..=day).await.unwrap())
    };
    let (models, groups) = margins().await;
    assert_eq!((models.len(), groups.len()), (2, 2));
    assert_eq!(groups[&Some(id)], models["Model Max"]);
    assert_eq!(models["Model Max"].amount(), Some(nanos(5)));
    let name = |of: &str| format!("{}:{{{account}}}:{of}:{day}", settings.prefix);
    let forgotten = [
        format!("HSET {} '' 2", name("spend")),
        format!("DEL {}", name("group-spend")),
        format!(r#"HDEL {} "Model Max\x00c" "Model Max\x00k""#, name("spend")),
    ];
    for forgotten in forgotten {
        server.ask(&forgotten).unwrap();
    }
    // What is added up from the counters is kept beside them.
    assert_eq!(margins().await, (models.clone(), groups.clone()));
    server.ask(&format!("DEL {}", name("usage"))).unwrap();
    assert_eq!(margins().await, (models, groups));
}
