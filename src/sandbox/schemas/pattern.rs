//! How much a regular expression can grow, told before it is compiled.

/// The longest pattern.
const BYTES: usize = 512;
/// Positions of one pattern, counted repetitions written out.
const POSITIONS: u64 = 1_000;
/// What a Unicode class counts as.
const UNICODE: u64 = 64;

/// The positions of a pattern, counted repetitions written out. An estimate: the
/// compiler's own size limit is behind it.
pub(super) fn positions(pattern: &str) -> Result<u64, String> {
    if pattern.len() > BYTES {
        return Err(format!("has a pattern of {} bytes; at most {BYTES} are allowed", pattern.len()));
    }
    let mut rest = pattern.chars().peekable();
    let mut groups = vec![Group::default()];
    while let Some(character) = rest.next() {
        match character {
            '(' => groups.push(Group::default()),
            ')' if groups.len() > 1 => {
                let weight = groups.pop().map_or(1, |group| group.total.max(1));
                group(&mut groups).atom(weight);
            }
            '[' => {
                let weight = class(&mut rest);
                group(&mut groups).atom(weight);
            }
            '\\' => {
                let weight = escape(&mut rest);
                group(&mut groups).atom(weight);
            }
            '{' => match repetition(rest.clone()) {
                Some((times, taken)) => {
                    rest.nth(taken - 1);
                    group(&mut groups).repeat(times);
                }
                None => group(&mut groups).atom(1),
            },
            '*' | '+' | '?' => {}
            _ => group(&mut groups).atom(1),
        }
    }
    let positions = groups.iter().fold(1, |sum: u64, group| sum.saturating_add(group.total));
    if positions > POSITIONS {
        return Err(format!(
            "has a pattern whose repetitions come to more than {POSITIONS} positions, written out"
        ));
    }
    Ok(positions)
}

#[derive(Default)]
struct Group {
    total: u64,
    last: u64,
}

impl Group {
    fn atom(&mut self, weight: u64) {
        self.total = self.total.saturating_add(weight);
        self.last = weight;
    }

    fn repeat(&mut self, times: u64) {
        let more = self.last.saturating_mul(times.saturating_sub(1));
        self.total = self.total.saturating_add(more);
        self.last = self.last.saturating_add(more);
    }
}

fn group(groups: &mut Vec<Group>) -> &mut Group {
    if groups.is_empty() {
        groups.push(Group::default());
    }
    let last = groups.len() - 1;
    &mut groups[last]
}

/// What follows a backslash.
fn escape(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> u64 {
    let Some(kind) = rest.next() else { return 1 };
    if matches!(kind, 'p' | 'P' | 'u' | 'x' | 'k') && rest.peek() == Some(&'{') {
        for character in rest.by_ref() {
            if character == '}' {
                break;
            }
        }
    }
    match kind {
        'p' | 'P' => UNICODE,
        'w' | 'W' | 'd' | 'D' | 's' | 'S' => 4,
        _ => 1,
    }
}

/// What follows an opening bracket, to the closing one.
fn class(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> u64 {
    let mut weight = 1;
    while let Some(character) = rest.next() {
        match character {
            ']' => break,
            '\\' => weight = escape(rest).max(weight),
            '^' => weight = weight.max(4),
            other if !other.is_ascii() => weight = weight.max(4),
            _ => {}
        }
    }
    weight
}

/// `m}`, `m,}` or `m,n}`: how often at most (at least, where nothing bounds it), and
/// how many characters that took.
fn repetition(rest: std::iter::Peekable<std::str::Chars<'_>>) -> Option<(u64, usize)> {
    let body: String = rest.take_while(|character| *character != '}').collect();
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // Too many digits for a number are a large one.
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let times = match body.split_once(',') {
        None => number(&body)?,
        Some((least, "")) => number(least)?.saturating_add(1),
        Some(("", most)) => number(most)?,
        Some((least, most)) => number(least)?.max(number(most)?),
    };
    Some((times, body.len() + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_written_out() {
        for (pattern, expected) in [
            ("", 1),
            ("abc", 4),
            ("^[a-z0-9]{1,39}$", 42),
            ("(ab){10}", 21),
            ("(a{10}){10}", 101),
            ("a{10}{10}", 101),
            ("a{,3}", 4),
            (r"\u{1000}", 2),
            (r"[\]{9}]{2}", 3),
            (r"\p{L}+", 65),
        ] {
            assert_eq!(positions(pattern), Ok(expected), "{pattern}");
        }
    }

    #[test]
    fn what_grows_too_much_is_refused() {
        for pattern in ["[a-z0]{3000,4000}", "((a{99}){99}){99}", "a{99999999999999999999999}", r"\p{L}{20}"]
        {
            assert!(positions(pattern).is_err_and(|reason| reason.contains("positions")), "{pattern}");
        }
        assert!(positions(&"x".repeat(BYTES + 1)).is_err_and(|reason| reason.contains("bytes")));
    }
}
