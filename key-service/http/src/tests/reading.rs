//! What callers may read: money, usage sums, and bills of generations.

use shared::{
    generation::{ModelApi, Origin},
    ids::{RefusalId, RequestId},
    wire::REFUSALS,
};

use super::*;
use domain::{event::Actor, refused::RefusedCall};
use key_service_management::{accounts::payments::NewDeposit, testing::BEGIN};

const UNKNOWN: &str = "gen_00000000000070008000000000000000";

/// Returns the id of the request for which these tests created a bill.
fn request_of(generation: &str) -> String {
    generation.replace("gen_", "req_")
}

impl Desk {
    async fn key_in(&self, group: Option<&str>) -> String {
        let group =
            group.map_or("null".to_owned(), |path| format!("\"{}\"", path.rsplit('/').next().unwrap()));
        self.created_id(&format!(r#"{{"group_id":{group}}}"#)).await
    }

    /// Returns the ids of listed bills, and whether more follow.
    async fn bills(&self, query: &str) -> (Vec<String>, bool) {
        ids_in(&self.get(&format!("{GENERATIONS}?{query}")).await)
    }
}

#[tokio::test]
async fn the_account_s_money_adds_up() {
    let desk = Desk::open().await;
    let key = desk.created_id("{}").await;
    desk.bill(&key, 4_215_000).await;
    desk.office
        .management
        .deposit(desk.account, NewDeposit::of(NanoUsd::from_usd(5)), Actor::System)
        .await
        .unwrap();
    let answer = desk.get(CREDITS).await;
    let expected = r#"{"object":"credits","credit":14.995785,"held":0,"total_deposited":15,"total_refunded":0,"total_used":0.004215}"#;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, expected));
}

#[tokio::test]
async fn usage_is_summed_up_by_what_is_asked_for() {
    let desk = Desk::open().await;
    let group = desk.group("{}").await;
    let group_id = group.rsplit('/').next().unwrap();
    let (inside, outside) = (desk.key_in(Some(&group)).await, desk.key_in(None).await);
    desk.bill(&inside, 1_000).await;
    desk.bill(&outside, 200).await;
    desk.office.clock.set("2026-11-21T00:00:00Z");
    desk.bill(&inside, 30).await;
    let data = async |query: String| desk.get(&format!("{USAGE}?{query}")).await.json["data"].clone();
    let line = |requests: u64, nanos: i64| {
        json!({"requests": requests, "prompt_tokens": 12 * requests, "cached_tokens": 0,
            "completion_tokens": 5 * requests,
            "cost": serde_json::from_str::<Value>(&NanoUsd::from_nanos(nanos).to_string()).unwrap()})
    };
    let with = |mut line: Value, members: Value| {
        line.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        line
    };
    assert_eq!(data(String::new()).await, json!([line(3, 1_230)]));
    let by_day = json!([
        with(line(2, 1_200), json!({"day": "2026-11-20"})),
        with(line(1, 30), json!({"day": "2026-11-21"})),
    ]);
    assert_eq!(data("group_by=day".into()).await, by_day);
    let by_group = json!([
        with(line(1, 200), json!({"group_id": null})),
        with(line(2, 1_030), json!({"group_id": group_id})),
    ]);
    assert_eq!(data("group_by=group".into()).await, by_group);
    let of_group = with(line(2, 1_030), json!({"key_id": inside, "model": "Model Flash"}));
    assert_eq!(data(format!("group_by=model,key&group_id={group_id}")).await, json!([of_group]));
    assert_eq!(data(format!("key_id={outside}&end=2026-11-20")).await, json!([line(1, 200)]));
    assert_eq!(data("start=2026-11-21".into()).await, json!([line(1, 30)]));
    let by_hour = json!([
        with(line(1, 1_000), json!({"hour": "2026-11-20T02:00:00Z", "key_id": inside})),
        with(line(1, 200), json!({"hour": "2026-11-20T02:00:00Z", "key_id": outside})),
        with(line(1, 30), json!({"hour": "2026-11-21T00:00:00Z", "key_id": inside})),
    ]);
    assert_eq!(data("group_by=hour,key".into()).await, by_hour);
    let by_user = json!([
        with(line(2, 1_200), json!({"day": "2026-11-20", "user": "u-1"})),
        with(line(1, 30), json!({"day": "2026-11-21", "user": "u-1"})),
    ]);
    assert_eq!(data("group_by=user,day".into()).await, by_user);
    assert_eq!(data("group_by=top_group".into()).await[1]["top_group_id"], group_id);
    let largest =
        json!(
            [with(line(2, 1_030), json!({"key_id": inside})), with(line(1, 200), json!({"others": true})),]
        );
    assert_eq!(data("group_by=key&top=1".into()).await, largest);
    assert_eq!(data("group_by=key&top=2".into()).await[1]["key_id"], outside.as_str());
    let by_upstream = data("group_by=upstream".into()).await;
    assert_eq!(by_upstream, json!([with(line(3, 1_230), json!({"upstream": "eu-2"}))]));
    assert_eq!(data("start=2026-11-22".into()).await, json!([]));
    let of_key = format!("group_by=user&key_id={inside}");
    for (query, param) in [
        ("group_by=week", "group_by"),
        ("group_by=", "group_by"),
        ("group_by=user,key", "group_by"),
        ("group_by=upstream,key", "group_by"),
        ("top=0", "top"),
        ("top=1001", "top"),
        (of_key.as_str(), "group_by"),
        ("group_by=hour&start=2026-10-01&end=2026-11-01", "group_by"),
        ("group_by=day,", "group_by"),
        ("group_by=day&group_by=key", "group_by"),
        ("start=soon", "start"),
        ("end=2026-13-01", "end"),
        ("start=2020-01-01", "start"),
        ("key_id=x", "key_id"),
        ("group_id=x", "group_id"),
    ] {
        desk.get(&format!("{USAGE}?{query}")).await.is_error(400, "invalid_value", Some(param));
    }
}

#[tokio::test]
async fn a_bill_is_found_by_its_generation_and_listed_by_filters() {
    let desk = Desk::open().await;
    let group = desk.group("{}").await;
    let group_id = group.rsplit('/').next().unwrap();
    let (inside, outside) = (desk.key_in(Some(&group)).await, desk.key_in(None).await);
    let mut made = Vec::new();
    for (n, key) in (0..).zip([&inside, &outside, &inside, &outside, &outside]) {
        desk.office.clock.set(&format!("2026-11-2{n}T04:05:06.789Z"));
        made.push(desk.bill(key, 1_000 + n).await);
    }
    let one = desk.get(&format!("{GENERATIONS}/{}", made[2])).await;
    let expected = format!(
        r#"{{"id":"{}","object":"generation","key_id":"{inside}","group_id":"{group_id}","model":"Model Flash","prompt_tokens":12,"cached_tokens":0,"completion_tokens":5,"cost":0.000001002,"charged":0.000001002,"shortfall":0,"ending":"captured","estimated":false,"dialect":"responses","stream":true,"user":"u-1","request_id":"{}","upstream":"eu-2","finish_reason":"length","authorized_ms":3,"first_token_ms":41,"latency_ms":950,"created_at":"2026-11-22T04:05:06Z"}}"#,
        made[2],
        request_of(&made[2])
    );
    assert_eq!((one.status.as_u16(), one.text), (200, expected));
    let newest_first: Vec<String> = made.iter().rev().cloned().collect();
    assert_eq!(desk.bills("").await, (newest_first.clone(), false));
    assert_eq!(desk.bills("order=asc&limit=3").await, (made[..3].to_vec(), true));
    assert_eq!(
        desk.bills(&format!("order=asc&limit=3&after={}", made[2])).await,
        (made[3..].to_vec(), false)
    );
    assert_eq!(desk.bills(&format!("limit=2&after={}", made[4])).await, (newest_first[1..3].to_vec(), true));
    let of_group = vec![made[2].clone(), made[0].clone()];
    assert_eq!(desk.bills(&format!("group_id={group_id}")).await, (of_group.clone(), false));
    assert_eq!(desk.bills(&format!("key_id={inside}&model=Model%20Flash")).await, (of_group, false));
    assert_eq!(desk.bills("model=Model%20Max").await, (Vec::new(), false));
    let told = "user=u-1&upstream=eu-2&ending=captured";
    assert_eq!(desk.bills(told).await, (newest_first.clone(), false));
    let of_request = format!("request_id={}", request_of(&made[1]));
    assert_eq!(desk.bills(&of_request).await, (made[1..2].to_vec(), false));
    assert_eq!(desk.bills(&format!("{of_request}&order=asc")).await, (made[1..2].to_vec(), false));
    let unknown = format!("request_id={}", request_of(UNKNOWN));
    for none in ["user=u-2", "upstream=eu-3", "ending=expired", &unknown] {
        assert_eq!(desk.bills(none).await, (Vec::new(), false), "{none}");
    }
    let no_request = desk.get(&format!("{GENERATIONS}?request_id={}", made[1])).await;
    no_request.is_error(400, "invalid_value", Some("request_id"));
    desk.get(&format!("{GENERATIONS}?ending=lost")).await.is_error(400, "invalid_value", Some("ending"));
    assert_eq!(desk.bills("start=2026-11-21&end=2026-11-22").await, (newest_first[2..4].to_vec(), false));
    assert_eq!(desk.bills("start=2026-11-24T04:05:06.789Z").await, (newest_first[..1].to_vec(), false));
    assert_eq!(desk.bills("end=2026-11-20T04:05:06.789Z&order=asc").await, (Vec::new(), false));
    for unknown in [UNKNOWN, "nonsense"] {
        let one = desk.get(&format!("{GENERATIONS}/{unknown}")).await;
        one.is_error(404, "generation_not_found", None);
        let page = desk.get(&format!("{GENERATIONS}?after={unknown}")).await;
        page.is_error(400, "invalid_value", Some("after"));
    }
}

#[tokio::test]
async fn a_bill_that_was_corrected_is_listed_once() {
    let desk = Desk::open().await;
    let key = desk.created_id("{}").await;
    let now = desk.office.clock.now();
    let generation = GenerationId::new(now, [9; 10]);
    let [hold, capture] = Desk::commands(&key, generation, 700);
    let expire = Command::Expire { key: key.parse().unwrap(), generation };
    let ticks = (0..8).map(|seen| Command::Tick { seen: Some(seen) });
    let commands = [hold].into_iter().chain(ticks).chain([expire, capture]).collect();
    let outcomes = desk.office.store.execute(desk.account, commands, now).await.unwrap();
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    for order in ["asc", "desc"] {
        let listed = desk.get(&format!("{GENERATIONS}?order={order}")).await;
        assert_eq!(ids_in(&listed).0, [generation.to_string()]);
        assert_eq!(listed.json["data"][0]["ending"], "captured");
    }
}

#[tokio::test]
async fn refused_calls_are_listed_newest_first_to_who_may_see_their_keys() {
    let desk = Desk::open().await;
    let group = desk.group("{}").await;
    let group_id = group.rsplit('/').next().unwrap();
    let (inside, outside) = (desk.key_in(Some(&group)).await, desk.key_in(None).await);
    let call = |minute: u32, key: &str, reason: &str, user: Option<&str>| RefusedCall {
        id: RefusalId::new(Timestamp::parse(&format!("2026-11-20T02:{minute}:00Z")).unwrap(), [1; 10]),
        key: key.parse().unwrap(),
        reason: reason.into(),
        model: user.map(|_| "Model Flash".into()),
        origin: user.map(|user| {
            let request =
                Some(RequestId::new(Timestamp::parse(BEGIN).unwrap(), [u8::try_from(minute).unwrap(); 10]));
            Arc::new(Origin { api: ModelApi::Embeddings, stream: false, user: Some(user.into()), request })
        }),
    };
    let calls = [
        call(10, &inside, "key_limit_reached", Some("u-1")),
        call(11, &outside, "invalid_api_key", None),
        call(12, &outside, "rate_limit_exceeded", Some("u-2")),
    ];
    desk.office.store.add_refused_calls(desk.account, &calls).await.unwrap();
    let ids = calls.each_ref().map(|call| call.id.to_string());
    let requests =
        calls.each_ref().map(|call| call.request().map_or_else(String::new, |request| request.to_string()));
    let listed = async |query: &str| ids_in(&desk.get(&format!("{REFUSALS}?{query}")).await);
    let all = desk.get(&format!("{REFUSALS}?limit=1&after={}", ids[1])).await;
    let expected = format!(
        r#"{{"object":"list","data":[{{"id":"{0}","object":"refusal","key_id":"{inside}","reason":"key_limit_reached","model":"Model Flash","dialect":"embeddings","stream":false,"user":"u-1","request_id":"{1}","created_at":"2026-11-20T02:10:00Z"}}],"first_id":"{0}","last_id":"{0}","has_more":false,"complete_since":null}}"#,
        ids[0], requests[0]
    );
    assert_eq!((all.status.as_u16(), all.text), (200, expected));
    let revoked = &desk.get(&format!("{REFUSALS}?reason=invalid_api_key")).await.json["data"][0];
    assert_eq!(
        [&revoked["model"], &revoked["dialect"], &revoked["user"], &revoked["request_id"]],
        [&Value::Null; 4]
    );
    let [first, second, third] = ids.clone();
    assert_eq!(listed("").await.0, [third.clone(), second.clone(), first.clone()]);
    assert_eq!(listed("order=asc&limit=2").await, (vec![first.clone(), second.clone()], true));
    for (query, expected) in [
        (format!("key_id={inside}"), vec![&first]),
        (format!("group_id={group_id}"), vec![&first]),
        ("user=u-2".into(), vec![&third]),
        (format!("request_id={}", requests[2]), vec![&third]),
        (format!("request_id={}", request_of(UNKNOWN)), vec![]),
        ("model=Model%20Flash".into(), vec![&third, &first]),
        ("start=2026-11-20T02:11:00Z&end=2026-11-20T02:12:00Z".into(), vec![&second]),
        ("reason=none".into(), vec![]),
    ] {
        assert_eq!(listed(&query).await.0.iter().collect::<Vec<_>>(), expected, "{query}");
    }
    let unknown = UNKNOWN.replace("gen_", "ref_");
    desk.get(&format!("{REFUSALS}?after={unknown}")).await.is_error(400, "invalid_value", Some("after"));
}

#[tokio::test]
async fn events_tell_who_did_what_newest_first() {
    let desk = Desk::open().await;
    let created = desk.created(r#"{"label":"a","limit":25}"#).await;
    let (id, plaintext) = (id_of(&created), created["key"].as_str().unwrap());
    desk.patch(&id, r#"{"limit":5.5,"label":"a"}"#).await;
    desk.patch(&id, r#"{"limit":5.5}"#).await;
    desk.delete(&id).await;
    let group = desk.group("{}").await;
    let answer = desk.get(EVENTS).await;
    assert!(!answer.text.contains(plaintext));
    let types = |answer: &Answer| {
        let events = answer.json["data"].as_array().unwrap().iter();
        events.map(|event| event["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = [
        "group.created",
        "key.revoked",
        "key.updated",
        "key.created",
        "management_key.created",
        "credit.added",
    ];
    assert_eq!(types(&answer), all);
    let updated = &answer.json["data"][2];
    assert_eq!(updated["data"], json!({"changes": {"limit": [25, 5.5]}}));
    assert_eq!(
        (&updated["actor"]["type"], &updated["actor"]["name"]),
        (&json!("management_key"), &json!("test"))
    );
    assert_eq!((&updated["key_id"], &updated["created_at"]), (&json!(id), &json!(BEGIN)));

    let group = group.rsplit('/').next().unwrap();
    for (query, expected) in [
        ("type=key.updated".to_owned(), &all[2..3]),
        (format!("key_id={id}"), &all[1..4]),
        (format!("group_id={group}"), &all[..1]),
        (format!("key_id={id}&type=key.created"), &all[3..4]),
    ] {
        assert_eq!(types(&desk.get(&format!("{EVENTS}?{query}")).await), expected, "{query}");
    }
    let (mut after, mut paged) = (String::new(), Vec::new());
    loop {
        let page = desk.get(&format!("{EVENTS}?limit=2{after}")).await;
        paged.extend(types(&page));
        after = format!("&after={}", page.json["last_id"].as_str().unwrap());
        if page.json["has_more"] == json!(false) {
            break;
        }
    }
    assert_eq!(paged, all);
    for (filter, expected) in [(String::new(), &all[..]), (format!("&key_id={id}"), &all[1..4])] {
        let mut oldest_first = types(&desk.get(&format!("{EVENTS}?order=asc{filter}")).await);
        oldest_first.reverse();
        assert_eq!(oldest_first, expected);
    }

    for (query, param) in [
        ("type=key.made", "type"),
        ("key_id=x", "key_id"),
        ("group_id=x", "group_id"),
        ("after=evt_00000000000070008000000000000000", "after"),
        ("limit=0", "limit"),
    ] {
        let answer = desk.get(&format!("{EVENTS}?{query}")).await;
        assert_eq!((answer.status.as_u16(), &answer.json["error"]["param"]), (400, &json!(param)), "{query}");
    }
}

#[tokio::test]
async fn the_list_of_events_says_since_when_it_is_complete() {
    let desk = Desk::open().await;
    let id = desk.created_id("{}").await;
    let since = async || desk.get(&format!("{EVENTS}?limit=1")).await.json["complete_since"].clone();
    assert_eq!(since().await, Value::Null);
    desk.office.clock.set("2026-11-20T03:00:00Z");
    // The in-memory store keeps this number of events, so exactly the earlier events are dropped.
    for n in 0..1_000 {
        desk.patch(&id, &format!(r#"{{"label":"{n}"}}"#)).await;
    }
    assert_eq!(since().await, "2026-11-20T03:00:00Z");
    let all = desk.get(EVENTS).await.json;
    assert_eq!(
        (all["data"].as_array().unwrap().len(), &all["complete_since"]),
        (1_000, &json!("2026-11-20T03:00:00Z"))
    );
    assert_eq!(desk.get(KEYS).await.json.get("complete_since"), None);
}
