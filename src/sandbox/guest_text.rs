//! Text that a guest wrote, made safe to show: bounded and without control characters.

/// The longest message of a guest's error.
pub(crate) const MESSAGE_BYTES: usize = 1024;

/// `text` with at most `limit` bytes, cut at a character.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// `text` with control characters as spaces and at most `limit` bytes.
pub(crate) fn plain(text: &str, limit: usize) -> String {
    cut(text, limit).chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// A guest's error message.
pub(crate) fn message(text: &str) -> String {
    let plain = plain(text, MESSAGE_BYTES);
    match plain.trim() {
        "" => "the connector gave no reason".to_owned(),
        reason => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_a_character() {
        assert_eq!(cut("añb", 2), "a");
        assert_eq!(cut("añb", 3), "añ");
    }

    #[test]
    fn control_characters_cannot_forge_a_line() {
        assert_eq!(message("one\r\ntwo\u{1b}[31m"), "one  two [31m");
        assert_eq!(message(" \n"), "the connector gave no reason");
    }
}
