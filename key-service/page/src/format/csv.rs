//! CSV cells that no spreadsheet mistakes for a formula.

/// Characters that start a formula in spreadsheets.
const FORMULA: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];

/// Characters after which a new cell may begin, depending on the spreadsheet's settings: separators, quotes and line
/// breaks.
const CELL_ENDS: [char; 7] = [',', ';', '\t', '"', '\'', '\n', '\r'];

/// Writes a text as a quoted cell. An apostrophe before a formula makes spreadsheets treat it as text. A spreadsheet
/// whose separator is not the comma may find several cells in the text, so the apostrophe is added wherever a cell may
/// begin.
pub fn cell(text: &str) -> String {
    let (mut cell, mut may_begin) = (String::with_capacity(text.len() + 2), true);
    cell.push('"');
    for c in text.chars() {
        if may_begin && FORMULA.contains(&c) {
            cell.push('\'');
        }
        if c == '"' {
            cell.push('"');
        }
        cell.push(c);
        // Spreadsheets skip blanks before a formula.
        may_begin = CELL_ENDS.contains(&c) || (may_begin && c.is_whitespace());
    }
    cell.push('"');
    cell
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_cell_is_a_formula_or_leaves_its_place() {
        for (text, written) in [
            ("Customer A", "\"Customer A\""),
            ("=cmd|' /C calc'!A0", "\"'=cmd|' /C calc'!A0\""),
            ("+1", "\"'+1\""),
            ("-1", "\"'-1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("a\",\"b", "\"a\"\",\"\"b\""),
            ("a;=1+1;b-c", "\"a;'=1+1;b-c\""),
            ("a;\"=LEN(\")+1;b", "\"a;\"\"'=LEN(\"\")+1;b\""),
            ("a,@x\t+1", "\"a,'@x\t'+1\""),
            ("a\n=1\r\n-2", "\"a\n'=1\r\n'-2\""),
            ("a;  ＝1", "\"a;  '＝1\""),
            ("2026-11-20", "\"2026-11-20\""),
        ] {
            assert_eq!(cell(text), written);
        }
    }

    /// Splits a line as a program with this separator would. If `minds_quotes` is set, the program understands quotes.
    fn cells(line: &str, separator: char, minds_quotes: bool) -> Vec<String> {
        let (mut cells, mut is_quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                '"' if minds_quotes => is_quoted = !is_quoted,
                '"' => {}
                c if !is_quoted && (c == separator || c == '\n') => cells.push(String::new()),
                c => cells.last_mut().unwrap().push(c),
            }
        }
        cells
    }

    proptest! {
        #[test]
        fn no_program_finds_a_formula_in_a_text(text in "[=+@;,\"' \t\r\na-]{0,12}") {
            let line = format!("1,{},2", cell(&text));
            for (separator, minds_quotes) in
                [(',', true), (',', false), (';', true), (';', false), ('\t', true), ('\t', false)]
            {
                for cell in cells(&line, separator, minds_quotes) {
                    prop_assert!(!cell.trim_start().starts_with(FORMULA), "{:?} in {:?}", cell, line);
                }
            }
        }
    }
}
