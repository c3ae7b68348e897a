//! Operators' actions: who may take them, and what they change.

use http::Method;
use tests::harness::{Browser, Stack};

use super::{PAGES, SECOND_FACTOR, accounts, id_of, newcomer, operator};
use crate::dashboard::signed_in;

/// An account that is not in the harness's books.
const CUSTOMER: &str = "Nantes d'Or";

/// A form: its path and its fields.
type Form = (String, Vec<(&'static str, &'static str)>);

/// Returns a form for every action of an operator, except signing out.
fn acts(account: &str) -> Vec<Form> {
    let credit = vec![("amount", "5"), ("payment_id", "in-1"), ("note", "May")];
    let refund = vec![("amount", "1"), ("payment_id", "re-1"), ("of", "in-1")];
    vec![
        ("/operator/accounts/new".into(), vec![("name", "made"), ("amount", "3")]),
        (format!("/operator/accounts/{account}/credit"), credit.clone()),
        (format!("/operator/accounts/{account}/credit/add"), credit),
        (format!("/operator/accounts/{account}/refund"), refund.clone()),
        (format!("/operator/accounts/{account}/refund/take"), refund),
        (format!("/operator/accounts/{account}/suspend"), vec![("reason", "unpaid")]),
        (format!("/operator/accounts/{account}/restore"), Vec::new()),
    ]
}

/// Returns everything that the actions change.
fn state(stack: &Stack) -> String {
    format!("{:?} {}", accounts(stack), stack.cli(&["events", "export", "--account", CUSTOMER]))
}

/// Returns the status of an answer, and where it redirects to.
async fn answers(browser: &mut Browser, form: &Form) -> (u16, String) {
    let answer = browser.post(&form.0, &form.1).await;
    (answer.status, answer.header("location").to_owned())
}

#[apply(fact)]
async fn no_member_no_key_and_no_operator_without_a_second_factor_reaches_a_page_or_an_act() {
    let stack = Stack::start().await;
    stack.cli(&["accounts", "create", "--name", CUSTOMER]);
    let account = id_of(&stack, CUSTOMER);
    let mut ann = operator(&stack, "ann").await;
    let mut new = newcomer(&stack, "bob").await;
    new.get(SECOND_FACTOR).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    // Uses a member's session as an operator's, and the reverse.
    let mut disguised = owner.clone();
    disguised.cookies.insert("faregate-operator".into(), owner.cookies["faregate"].clone());
    let mut nobody = Browser::at(&stack.url(""));
    let mut program = Browser::at(&stack.url(""));
    program.headers = vec![("authorization", format!("Bearer {}", stack.account.management_key))];
    let mut foreign = ann.clone();
    "http://evil.example".clone_into(&mut foreign.origin);
    let mut forged = ann.clone();

    let before = state(&stack);
    let page_of_account = format!("/operator/accounts/{account}");
    for form in &acts(&account) {
        for (who, browser) in [
            ("nobody", &mut nobody),
            ("a viewer", &mut viewer),
            ("an owner", &mut owner),
            ("an owner's session as an operator's", &mut disguised),
            ("a management key", &mut program),
        ] {
            let led = answers(browser, form).await;
            assert_eq!(led, (303, "/operator/sign-in".into()), "{who}: {form:?}");
        }
        let led = answers(&mut new, form).await;
        assert_eq!(led, (303, SECOND_FACTOR.into()), "an operator without a second factor: {form:?}");
        assert_eq!(answers(&mut foreign, form).await.0, 403, "another site: {form:?}");
        // The page about the failure contains a valid token, which a browser would keep.
        forged.token.clone_from(&owner.token);
        assert_eq!(answers(&mut forged, form).await.0, 403, "a member's token: {form:?}");
    }
    for path in PAGES.into_iter().chain([page_of_account.as_str()]) {
        for browser in [&mut nobody, &mut viewer, &mut owner, &mut disguised, &mut program] {
            let page = browser.get(path).await;
            assert_eq!((page.status, page.header("location")), (303, "/operator/sign-in"), "{path}");
        }
        let page = new.get(path).await;
        assert_eq!((page.status, page.header("location")), (303, SECOND_FACTOR), "{path}");
        assert_eq!(ann.get(path).await.status, 200, "{path}");
    }
    assert_eq!(state(&stack), before);
    for form in &acts(&account) {
        ann.get("/operator").await;
        let done = answers(&mut ann, form).await.0;
        assert!(matches!(done, 200 | 303), "an operator: {done} {form:?}");
    }
    assert_ne!(state(&stack), before);
}

#[apply(fact)]
async fn an_operator_is_no_member_and_has_no_page_of_an_account() {
    let stack = Stack::start().await;
    let mut ann = operator(&stack, "ann").await;
    for path in ["/dashboard", "/dashboard/keys", "/dashboard/members", "/dashboard/you"] {
        assert_eq!(ann.get(path).await.status, 303, "{path}");
    }
    let session = ann.cookies["faregate-operator"].clone();
    ann.cookies.insert("faregate".into(), session);
    for path in ["/dashboard", "/dashboard/keys", "/dashboard/members", "/dashboard/you"] {
        let page = ann.get(path).await;
        assert_eq!(page.status, 303, "{path}");
        assert!(page.header("location").starts_with("/dashboard/sign-in"), "{page}");
    }
    // An account may be called `operators`; it is still separate from the operators.
    stack.cli(&["accounts", "create", "--name", "operators"]);
    let members = stack.cli(&["members", "list", "--account", "operators"]);
    assert!(!members.contains("ann"), "{members}");
    let link = stack.cli(&["members", "invite", "--account", "operators", "--name", "ann"]);
    let mut member = Browser::at(&stack.url(""));
    assert_eq!(member.sign_in(&link).await.status, 303);
    assert_eq!(member.get("/operator").await.status, 303);
}

#[apply(fact)]
async fn credit_is_asked_for_twice_and_a_payment_is_added_once_with_the_operators_name() {
    let stack = Stack::start().await;
    stack.cli(&["accounts", "create", "--name", CUSTOMER, "--credit", "5"]);
    let account = id_of(&stack, CUSTOMER);
    let path = format!("/operator/accounts/{account}");
    let mut ann = operator(&stack, "ann").await;
    let page = ann.get(&path).await;
    assert!(page.text().contains(CUSTOMER), "{page}");
    let credit = [("amount", "$1,000.50"), ("payment_id", "in-7"), ("note", "Invoice 7")];
    let asked = ann.post(&format!("{path}/credit"), &credit).await;
    assert_eq!(asked.status, 200, "{asked}");
    assert!(asked.text().contains("from $5.00 to $1,005.50"), "{asked}");
    assert!(ann.get(&path).await.text().contains("$5.00"), "nothing is added before");
    for _ in 0..2 {
        let fields = [("amount", "1000.5"), ("payment_id", "in-7"), ("note", "Invoice 7")];
        let added = ann.post(&format!("{path}/credit/add"), &fields).await;
        assert_eq!((added.status, added.header("location")), (303, path.as_str()), "{added}");
        let page = ann.get(&path).await;
        assert!(
            page.text().contains("Payment in-7 of $1,000.50 was added. Balance after it: $1,005.50."),
            "{page}"
        );
        assert!(page.text().contains("Invoice 7"), "{page}");
    }
    let differs = [("amount", "7"), ("payment_id", "in-7"), ("note", "")];
    let refused = ann.post(&format!("{path}/credit/add"), &differs).await;
    assert_eq!(refused.status, 422, "{refused}");
    assert!(
        refused.text().contains("id=\"payment_id-fault\"") && refused.text().contains("1000.5"),
        "{refused}"
    );
    for (field, value) in [("amount", "0"), ("amount", "much"), ("payment_id", " ")] {
        let fields: Vec<_> =
            differs.iter().map(|(name, old)| (*name, if *name == field { value } else { old })).collect();
        let refused = ann.post(&format!("{path}/credit"), &fields).await;
        assert!(
            refused.status == 422 && refused.text().contains(&format!("id=\"{field}-fault\"")),
            "{refused}"
        );
    }
    let events = stack.cli(&["events", "export", "--account", CUSTOMER]);
    let added: Vec<_> = events.lines().filter(|line| line.contains("\"in-7\"")).collect();
    assert_eq!(added.len(), 1, "{events}");
    assert!(added[0].contains("\"ann\"") && added[0].contains("\"operator\""), "{events}");
    let listed = accounts(&stack);
    let listed = listed.iter().find(|listed| listed["name"] == CUSTOMER).unwrap();
    assert_eq!(listed["credit"].to_string(), "1005.5");
}

#[apply(fact)]
async fn a_refund_is_asked_for_twice_and_takes_once_what_is_there() {
    let stack = Stack::start().await;
    stack.cli(&["accounts", "create", "--name", CUSTOMER, "--credit", "5"]);
    let path = format!("/operator/accounts/{}", id_of(&stack, CUSTOMER));
    let mut ann = operator(&stack, "ann").await;
    let form = ann.get(&format!("{path}/refund")).await;
    assert!(form.status == 200 && form.text().contains("$5.00"), "{form}");
    let mut refund = vec![("amount", "8"), ("payment_id", "re-7"), ("note", "chargeback")];
    let asked = ann.post(&format!("{path}/refund"), &refund).await;
    assert!(asked.status == 200 && asked.text().contains("would be refused"), "{asked}");
    let refused = ann.post(&format!("{path}/refund/take"), &refund).await;
    assert!(refused.text().contains("Only 5 USD can be refunded"), "{refused}");
    refund.push(("partial", "yes"));
    for _ in 0..2 {
        assert_eq!(ann.post(&format!("{path}/refund/take"), &refund).await.status, 303);
        let page = ann.get(&path).await;
        assert!(page.text().contains("Refund re-7 took $5.00. Balance after it: $0.00."), "{page}");
    }
    refund.push(("of", "in-9"));
    refund[1] = ("payment_id", "re-8");
    let unknown = ann.post(&format!("{path}/refund/take"), &refund).await;
    assert!(unknown.text().contains("There is no payment with this id"), "{unknown}");
    let events = stack.cli(&["events", "export", "--account", CUSTOMER]);
    assert_eq!(events.matches("credit.refunded").count(), 1, "{events}");
}

#[apply(fact)]
async fn a_new_account_is_made_once_and_its_first_credit_names_the_operator() {
    let stack = Stack::start().await;
    let mut ann = operator(&stack, "ann").await;
    let made = ann.post("/operator/accounts/new", &[("name", " Acme "), ("amount", "12.50")]).await;
    assert_eq!(made.status, 303, "{made}");
    let page = ann.get(made.header("location")).await;
    assert!(page.text().contains("Created Acme with $12.50 of credit."), "{page}");
    let events = stack.cli(&["events", "export", "--account", "Acme"]);
    for told in ["account.created", "credit.added"] {
        let line = events.lines().find(|line| line.contains(told)).unwrap();
        assert!(line.contains("\"ann\""), "{line}");
    }
    let again = ann.post("/operator/accounts/new", &[("name", "Acme"), ("amount", "12.50")]).await;
    assert!(again.status == 422 && again.text().contains("id=\"name-fault\""), "{again}");
    for name in ["", "a\u{7}b", &"x".repeat(81)] {
        let refused = ann.post("/operator/accounts/new", &[("name", name), ("amount", "0")]).await;
        assert_eq!(refused.status, 422, "{refused}");
    }
    let answer =
        stack.http.send_as(&stack.account.management_key, Method::GET, &stack.url("/operator"), None).await;
    assert_eq!(answer.status, 303);
}
