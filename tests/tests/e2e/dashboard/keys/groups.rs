//! The groups' pages.

use bench::attack::pages::group_with_children;
use http::Method;
use serde_json::json;
use tests::{
    harness::{Answer, Stack, attribute},
    upstream::Script,
};

use crate::{
    dashboard::{pages::spend, signed_in},
    money::budgets::group,
};

const PATH: &str = "/dashboard/groups";

#[apply(fact)]
async fn a_group_is_created_filled_changed_and_archived() {
    let stack = Stack::start().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let mut made = async |fields: &[(&str, &str)]| {
        let made = owner.post(PATH, fields).await;
        assert_eq!(made.status, 303, "{made}");
        (made.header("location").to_owned(), owner.get(made.header("location")).await)
    };
    let (school, page) = made(&[("name", "School"), ("limit", "1,000.00"), ("resets", "month")]).await;
    assert!(
        page.text().contains("Group created.") && page.text().contains("At most $1,000 a month."),
        "{page}"
    );
    let school_id = school.rsplit('/').next().unwrap().to_owned();
    let (course, page) =
        made(&[("name", "Course 101"), ("external_id", "c101"), ("parent_id", &school_id), ("limit", "400")])
            .await;
    assert!(
        page.text().contains("At most $400 in all. Also counts toward School ($1,000 a month)."),
        "{page}"
    );
    let (again, page) = made(&[("name", "Another"), ("external_id", "c101")]).await;
    assert!(again == course && page.text().contains("already has that external id"), "{page}");
    let course_id = course.rsplit('/').next().unwrap().to_owned();
    let key = stack.key_with(json!({"label": "Student", "limit": 5, "group_id": course_id})).await;
    assert_eq!(stack.call(&key, Script::tokens(100, 50)).send().await.status, 200);

    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    let used = format!("${}", stack.used(&key).await);
    for path in [PATH, &school, &course] {
        let page = viewer.get(path).await;
        assert!(page.text().contains("Course 101") && page.text().contains(&used), "{path}: {page}");
        assert!(!page.text().contains("/archive\""), "{path}: {page}");
    }
    for text in ["c101", "course", "101+COURSE", &course_id] {
        let found = viewer.get(&format!("{PATH}?q={text}")).await;
        assert!(
            found.text().contains("Course 101") && !found.text().contains("1,000 a month"),
            "{text}: {found}"
        );
    }
    assert!(viewer.get(&format!("{PATH}?q=northwind")).await.text().contains("No groups match."));
    for path in [PATH, &school] {
        let page = viewer.get(path).await;
        assert!(
            page.text().contains("0 keys, 1 in 1 subgroup"),
            "keys of child groups count: {path}: {page}"
        );
    }
    let page = viewer.get(&format!("/dashboard/keys/{}", key.id)).await;
    assert!(page.text().contains("At most $5 in all. Also counts toward Course 101 ($400 in all)"), "{page}");
    let listed = viewer.get(&format!("/dashboard/keys?group={school_id}")).await;
    assert!(listed.text().contains("No keys match"), "{listed}");
    assert!(viewer.get(&format!("/dashboard/keys?group={course_id}")).await.text().contains("Student"));

    let deep = owner.post(&school, &[("name", "School"), ("parent_id", &course_id)]).await;
    assert!(deep.status == 422 && deep.text().contains("id=\"parent_id-fault\""), "{deep}");
    assert_eq!(owner.post(&course, &[("name", "Course 102")]).await.status, 303);
    assert!(owner.get(&course).await.text().contains("Saved. Name: Course 101 → Course 102."));
    let archive = format!("{course}/archive");
    assert!(owner.get(&archive).await.text().contains("Course 102"));
    assert_eq!(stack.call(&key, Script::tokens(100, 50)).send().await.status, 200, "asking archives nothing");
    assert_eq!(owner.post(&archive, &[]).await.status, 303);
    stack.call(&key, Script::tokens(1, 1)).send().await.assert_error(401, "group_archived");
    assert!(owner.get(&course).await.text().contains("archived"));
    let page = owner.get(&format!("/dashboard/keys/{}", key.id)).await;
    assert!(page.text().contains("is archived."), "{page}");
}

#[apply(fact)]
async fn all_keys_of_a_group_are_revoked_together() {
    let stack = Stack::start().await;
    let group = stack.cli(&["groups", "create", "--account", &stack.account.name, "--name", "Agents"]);
    let path = format!("{PATH}/{}", group.trim());
    let inside = stack.key_with(json!({"group_id": group.trim()})).await;
    let outside = stack.key().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let asked = owner.get(&format!("{path}/revoke-keys")).await;
    assert!(asked.text().contains("1 key in the group"), "{asked}");
    assert_eq!(owner.post(&format!("{path}/revoke-keys"), &[]).await.status, 303);
    assert!(owner.get(&path).await.text().contains("1 API key revoked."));
    let status =
        async |id: &str| stack.manage(Method::GET, &format!("/{id}"), None).await.json()["status"].clone();
    assert_eq!((status(&inside.id).await, status(&outside.id).await), (json!("revoked"), json!("active")));
}

#[apply(fact)]
async fn the_page_of_a_group_shows_a_hundred_groups_and_leads_to_all() {
    // Once over SQLite, and once over Redis.
    for stack in [Stack::start().await, crate::dashboard::replicas().await] {
        let path = group_with_children(&stack, &stack.account, 130).await;
        let id = path.rsplit('/').next().unwrap().to_owned();
        let mut owner = signed_in(&stack, &stack.account, "owner").await;
        let rows = |page: &Answer| page.text().matches("<th scope=\"row\">").count();
        let page = owner.get(&path).await;
        assert!(
            rows(&page) == 100 && page.text().len() < 160_000,
            "{} rows, {}",
            rows(&page),
            page.text().len()
        );
        let all = attribute(&page, "<p><a href=\"/dashboard/groups?").unwrap();
        assert_eq!(all, format!("parent={id}"));
        let mut seen = Vec::new();
        let mut next = Some(format!("{PATH}?{all}"));
        while let Some(at) = next {
            let page = owner.get(&at).await;
            let named =
                page.text().split("<bdi>Customer ").skip(1).map(|rest| rest.split('<').next().unwrap());
            seen.extend(named.map(|number| number.parse::<usize>().unwrap()));
            next = attribute(&page, "rel=\"next\" href=\"").map(|next| next.replace("&amp;", "&"));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..130).collect::<Vec<_>>());
        let wrong = owner.get(&format!("{PATH}?parent=agents")).await;
        assert_eq!(wrong.status, 404, "{wrong}");
    }
}

#[apply(fact)]
async fn the_page_of_a_group_has_a_chart_its_requests_and_the_use_of_each_key() {
    // Once over SQLite, and once over Redis.
    for stack in [Stack::start().await, crate::dashboard::replicas().await] {
        let school = group(&stack, json!({"name": "School"})).await;
        let course = group(&stack, json!({"name": "Course", "parent_id": school["id"]})).await;
        let [inside, outside] = ["inside", "outside"];
        let inside = stack.key_with(json!({"label": inside, "group_id": course["id"]})).await;
        let outside = stack.key_with(json!({"label": outside})).await;
        for key in [&inside, &inside, &outside] {
            spend(&stack, key).await;
        }
        let used = stack.used(&inside).await;
        let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
        for of in [&school, &course] {
            let path = format!("{PATH}/{}", of["id"].as_str().unwrap());
            for by in ["", "?by=key", "?show=requests&range=month"] {
                let page = viewer.get(&format!("{path}{by}")).await;
                assert!(page.text().contains("figure class=\"chart\""), "{by}: {page}");
                assert!(!page.text().contains("outside"), "{by}: {page}");
            }
            let page = viewer.get(&format!("{path}?by=key")).await;
            let legend =
                format!("<bdi title=\"inside\">inside</bdi> <strong><span class=\"usd\" title=\"${used}\">");
            assert!(page.text().contains(&legend), "{page}");
            assert_eq!(page.text().matches("<tr title=\"gen_").count(), 2, "{page}");
            let requests = viewer.get(&format!("{path}/requests")).await;
            assert_eq!(requests.text().matches("<tr title=\"gen_").count(), 2, "{requests}");
            assert!(requests.text().contains("2 requests · "), "{requests}");
            let earlier = viewer.get(&format!("{path}/requests?range=last-month")).await;
            assert!(earlier.text().contains("There were no requests on these days."), "{earlier}");
            assert!(viewer.get(&format!("{path}/use")).await.text().contains("/v1/chat/completions"));
            let settings = viewer.get(&format!("{path}/settings")).await;
            assert!(
                settings.text().contains("Only owners can change the settings of a group."),
                "{settings}"
            );
        }
        // The table of keys shows each key's charges during these days, next to its total.
        let path = format!("{PATH}/{}", course["id"].as_str().unwrap());
        let page = viewer.get(&path).await;
        let (_, keys) = page.text().split_once("aria-label=\"API keys\"").unwrap();
        let (keys, _) = keys.split_once("</table>").unwrap();
        assert!(keys.contains(">Last 30 days</th>"), "{page}");
        assert_eq!(keys.matches(&format!("title=\"${used}\"")).count(), 2, "{keys}");
    }
}
