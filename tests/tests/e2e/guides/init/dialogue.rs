//! Questions on a terminal. They are answered with names, numbers and invalid values, and are interrupted with Ctrl-C.

use tests::harness::on_terminal;

use super::{COST, Folder, KEY, vendor};

/// What a terminal receives for Ctrl-C and for Ctrl-D.
const INTERRUPT: &str = "\u{3}";
const END: &str = "\u{4}";

const VENDOR: &str = "the address of another server:";
const MODEL: &str = "Model (name or number):";
const PRICE: &str = "Price (rates, a file, or free):";

#[apply(fact)]
async fn a_person_is_asked_for_what_no_flag_says() {
    let folder = Folder::new();
    let stand_in = vendor("api-key", KEY).await;
    let address = format!("{}\n", stand_in.url("/openai/v1"));
    let env = [("AZURE_OPENAI_API_KEY", KEY.to_owned())];
    let steps = [
        (VENDOR, "no one\n"),
        ("there is no vendor \"no one\"", ""),
        (VENDOR, "3\n"),
        ("replace RESOURCE with your own value):", "nowhere\n"),
        ("is not an http(s) address", ""),
        ("RESOURCE with your own value):", address.as_str()),
        (MODEL, "\n"),
        (MODEL, "lark-mini\n"),
        (PRICE, "cheap\n"),
        ("is not a rate such as input=3", ""),
        (PRICE, "missing.json\n"),
        ("No such file", ""),
        (PRICE, "input=3,output=15\n"),
    ];
    let shown = on_terminal(folder.path(), &env, &["init", "--check"], &steps);
    assert_eq!(shown.status, 0, "{}", shown.text);
    assert!(
        shown.text.contains("   3  azure       Azure OpenAI") && shown.text.contains("   2  lark-mini"),
        "{}",
        shown.text
    );
    assert!(
        shown.text.contains(COST) && shown.text.ends_with("  faregate --models models.toml\n"),
        "{}",
        shown.text
    );
    assert!(!shown.text.contains(KEY), "{}", shown.text);
    assert_eq!(folder.model("models.toml").id, "lark-mini");
}

#[apply(fact)]
async fn a_part_of_a_name_shows_the_models_that_have_it() {
    let folder = Folder::new();
    let stand_in = vendor("authorization", "").await;
    let address = format!("{}\n", stand_in.url("/v1"));
    let steps = [
        (VENDOR, address.as_str()),
        (MODEL, "owl\n"),
        ("no model \"owl\"; its models are lark, lark-mini, wren", ""),
        (MODEL, "LAR\n"),
        ("2  lark-mini", ""),
        (MODEL, "1\n"),
        (PRICE, "free\n"),
    ];
    let shown = on_terminal(folder.path(), &[], &["init"], &steps);
    assert_eq!((shown.status, folder.model("models.toml").id.as_str()), (0, "lark"), "{}", shown.text);
}

#[apply(fact)]
async fn an_interrupt_at_any_question_leaves_nothing() {
    let stand_in = vendor("authorization", "").await;
    let address = format!("{}\n", stand_in.url("/v1"));
    let questions = [(VENDOR, address.as_str()), (MODEL, "lark\n"), (PRICE, "free\n")];
    for at in 0..questions.len() {
        for (typed, said) in [(INTERRUPT, "interrupted; nothing was written"), (END, "nothing was written")] {
            let folder = Folder::new();
            let mut steps = questions[..at].to_vec();
            steps.push((questions[at].0, typed));
            let shown = on_terminal(folder.path(), &[], &["init"], &steps);
            assert!(shown.status != 0 && shown.text.contains(said), "{shown:?}");
            assert_eq!(folder.files(), [""; 0], "{shown:?}");
        }
    }
    let folder = Folder::new();
    let steps = [(VENDOR, "azure\n"), ("replace RESOURCE with your own value):", INTERRUPT)];
    let shown = on_terminal(folder.path(), &[], &["init"], &steps);
    assert!(shown.status != 0 && shown.text.contains("interrupted; nothing was written"), "{shown:?}");
    assert_eq!(folder.files(), [""; 0], "{shown:?}");
}
