//! The date of prompts.

use minijinja::{Error, ErrorKind};

/// Formats 26 July 2024 at midnight, the fallback of Llama 3's own template, in place of the current
/// time. With the current time, prompts would change every day and no run could be repeated.
///
/// The directives are those of Python on Linux, with the flags `-` (no zeros), `_` (spaces instead),
/// `0`, `^` (capitals) and `#`.
pub(super) fn format_fixed_date(format: &str) -> Result<String, Error> {
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(c) = characters.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut flag = None;
        let mut directive = characters.next();
        if let Some('-' | '_' | '0' | '^' | '#') = directive {
            flag = directive;
            directive = characters.next();
        }
        // Microseconds are Python's own, and take no flag.
        let text = directive.filter(|directive| flag.is_none() || *directive != 'f');
        let Some(text) = text.and_then(value) else {
            let message = format!(
                "strftime_now does not support the directive %{}",
                directive.unwrap_or(' ')
            );
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        };
        out += &with_flag(text, flag);
    }
    Ok(out)
}

/// Returns the text of a directive.
fn value(directive: char) -> Option<&'static str> {
    Some(match directive {
        'A' => "Friday",
        'a' => "Fri",
        'B' => "July",
        'b' | 'h' => "Jul",
        'C' => "20",
        'c' => "Fri Jul 26 00:00:00 2024",
        'D' | 'x' => "07/26/24",
        'd' | 'e' => "26",
        'F' => "2024-07-26",
        'f' => "000000",
        'G' | 'Y' => "2024",
        'g' | 'y' => "24",
        'H' | 'M' | 'S' => "00",
        'I' | 'l' => "12",
        'j' => "208",
        'k' => " 0",
        'm' => "07",
        'n' => "\n",
        'P' => "am",
        'p' => "AM",
        'R' => "00:00",
        'r' => "12:00:00 AM",
        'T' | 'X' => "00:00:00",
        't' => "\t",
        'U' => "29",
        'W' => "30", // the year began on a Monday
        'u' | 'w' => "5",
        'V' => "30",
        'Z' | 'z' => "", // a time without a zone
        '%' => "%",
        _ => return None,
    })
}

fn with_flag(text: &str, flag: Option<char>) -> String {
    let number = text.trim_start_matches([' ', '0']);
    let is_number = text.trim_start().bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty();
    let is_name = text.bytes().all(|byte| byte.is_ascii_alphabetic());
    // A zero keeps its last digit.
    let digits = if number.is_empty() { "0" } else { number };
    match flag {
        Some('-') if is_number => digits.to_owned(),
        Some('_') if is_number => format!("{digits:>width$}", width = text.len()),
        Some('0') if is_number => format!("{digits:0>width$}", width = text.len()),
        Some('^') => text.to_uppercase(),
        Some('#') if text == "AM" => "am".to_owned(),
        Some('#') if is_name && text != "am" => text.to_uppercase(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are those of Python: `datetime(2024, 7, 26).strftime(…)`, glibc.
    #[test]
    fn directives_match_python() {
        for (format, expected) in [
            ("%d %b %Y", "26 Jul 2024"),
            ("%-d/%-m/%y, %A %a %B", "26/7/24, Friday Fri July"),
            ("%_m %0e %^b %#p %-H %_H %-k", " 7 26 JUL am 0  0 0"),
            ("%Y-%m-%dT%H:%M:%S.%f%z%Z%%", "2024-07-26T00:00:00.000000%"),
            ("%j %U %W %V %G %u %w %C %g", "208 29 30 30 2024 5 5 20 24"),
            ("%I %l %p %P %r %k", "12 12 AM am 12:00:00 AM  0"),
            ("%c|%x|%X|%D", "Fri Jul 26 00:00:00 2024|07/26/24|00:00:00|07/26/24"),
            (
                "%F|%R|%T|%h|%n%t|%#a|%#c",
                "2024-07-26|00:00|00:00:00|Jul|\n\t|FRI|Fri Jul 26 00:00:00 2024",
            ),
        ] {
            assert_eq!(format_fixed_date(format).unwrap(), expected, "{format}");
        }
        assert!(format_fixed_date("%Q").is_err());
        assert!(format_fixed_date("%").is_err());
        assert!(format_fixed_date("%-f").is_err(), "Python prints it unchanged");
    }
}
