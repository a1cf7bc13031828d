//! JSON values of Parquet fields. The library's own conversion panics on decimals without an
//! integer part and on dates that its calendar lacks, and writes text without a mark as base64.

use parquet::basic::ConvertedType;
use parquet::data_type::Decimal;
use parquet::record::{Field, Row};
use parquet::schema::types::{Type, TypePtr};
use serde_json::{Map, Value};

const MILLIS_PER_DAY: i64 = 86_400_000;
const MICROS_PER_DAY: i64 = 86_400_000_000;

/// The treatment of bytes that are not UTF-8.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BinaryForm {
    /// An error.
    Refused,
    /// Text in base64.
    Base64,
}

/// Returns the row as an object with one field per column.
///
/// # Errors
/// Returns the problem, with the column, if a value has no JSON form.
pub(crate) fn row_value(
    row: Row,
    columns: &[TypePtr],
    binary: BinaryForm,
) -> Result<Value, String> {
    let mut object = Map::new();
    for ((name, field), column) in row.into_columns().into_iter().zip(columns) {
        let value = column_value(&field, column, binary)
            .map_err(|problem| format!("the column {name:?} {problem}"))?;
        object.insert(name, value);
    }
    Ok(Value::Object(object))
}

/// Returns the value of a column's field.
///
/// # Errors
/// Returns the problem if the value has no JSON form.
pub(crate) fn column_value(
    field: &Field,
    column: &Type,
    binary: BinaryForm,
) -> Result<Value, String> {
    let mut value = field_value(field, binary)?;
    flatten_lists(&mut value, column);
    Ok(value)
}

/// Removes the second list that the library puts around the items of a list of two levels, as old
/// versions of Avro, Hive and Spark write them.
fn flatten_lists(value: &mut Value, column: &Type) {
    if column.is_primitive() {
        return;
    }
    let fields = column.get_fields();
    if column.get_basic_info().converted_type() == ConvertedType::LIST {
        let Value::Array(items) = value else { return };
        let repeated = &fields[0];
        let mut item_type = repeated;
        if has_two_levels(column) {
            let mut flat = Vec::new();
            for item in std::mem::take(items) {
                match item {
                    Value::Array(inner) => flat.extend(inner),
                    other => flat.push(other),
                }
            }
            *items = flat;
        } else {
            item_type = &repeated.get_fields()[0];
        }
        for item in items {
            flatten_lists(item, item_type);
        }
    } else if let Value::Object(object) = value {
        for field in fields {
            if let Some(member) = object.get_mut(field.name()) {
                flatten_lists(member, field);
            }
        }
    }
}

/// True if the repeated field of a list is its item, by the rules of the Parquet format for backward
/// compatibility, which the library follows.
fn has_two_levels(list: &Type) -> bool {
    let repeated = &list.get_fields()[0];
    repeated.is_primitive()
        || repeated.get_fields().len() > 1
        || repeated.name() == "array"
        || repeated.name() == format!("{}_tuple", list.name())
}

/// Returns the value of a field.
///
/// # Errors
/// Returns the problem if the value has no JSON form.
fn field_value(field: &Field, binary: BinaryForm) -> Result<Value, String> {
    Ok(match field {
        Field::Bytes(bytes) => match (std::str::from_utf8(bytes.data()), binary) {
            (Ok(text), _) => Value::String(text.to_owned()),
            (Err(_), BinaryForm::Base64) => field.to_json_value(),
            (Err(error), BinaryForm::Refused) => {
                return Err(format!("has bytes that are not UTF-8: {error}"));
            }
        },
        Field::Decimal(decimal) => Value::String(decimal_text(decimal)?),
        Field::Date(days) => Value::String(date_text(i64::from(*days))),
        Field::TimestampMillis(millis) => {
            let time = clock_text(millis.rem_euclid(MILLIS_PER_DAY), 3);
            Value::String(format!("{} {time} +00:00", date_text(millis.div_euclid(MILLIS_PER_DAY))))
        }
        Field::TimestampMicros(micros) => {
            let time = clock_text(micros.rem_euclid(MICROS_PER_DAY), 6);
            Value::String(format!("{} {time} +00:00", date_text(micros.div_euclid(MICROS_PER_DAY))))
        }
        Field::TimeMillis(millis) => {
            Value::String(clock_text(i64::from(*millis).rem_euclid(MILLIS_PER_DAY), 3))
        }
        Field::TimeMicros(micros) => {
            Value::String(clock_text(micros.rem_euclid(MICROS_PER_DAY), 6))
        }
        Field::Group(row) => {
            let mut object = Map::new();
            for (name, member) in row.get_column_iter() {
                object.insert(name.clone(), field_value(member, binary)?);
            }
            Value::Object(object)
        }
        Field::ListInternal(list) => {
            let values: Result<_, String> =
                list.elements().iter().map(|item| field_value(item, binary)).collect();
            Value::Array(values?)
        }
        Field::MapInternal(map) => {
            let mut object = Map::new();
            for (key, member) in map.entries() {
                let name = match field_value(key, binary)? {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                object.insert(name, field_value(member, binary)?);
            }
            Value::Object(object)
        }
        simple => simple.to_json_value(),
    })
}

/// Returns a decimal with as many digits after the point as its type has.
fn decimal_text(decimal: &Decimal) -> Result<String, String> {
    let bytes = decimal.data();
    let mut extended =
        [if bytes.first().is_some_and(|byte| byte & 0x80 != 0) { 0xFF } else { 0 }; 16];
    let Some(start) = extended.len().checked_sub(bytes.len()) else {
        return Err("has decimals of more than 38 digits".to_owned());
    };
    extended[start..].copy_from_slice(bytes);
    let unscaled = i128::from_be_bytes(extended);
    let scale = usize::try_from(decimal.scale()).map_err(|_| "has a negative scale".to_owned())?;
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if unscaled < 0 { "-" } else { "" };
    let point = if scale > 0 { "." } else { "" };
    Ok(format!("{sign}{whole}{point}{fraction}"))
}

/// Returns the Gregorian date of a number of days since 1970-01-01. Years beyond four digits have a
/// sign, as in ISO 8601. (Hinnant, “chrono-compatible low-level date algorithms”: years begin in
/// March, so that the leap day is the last.)
fn date_text(days: i64) -> String {
    let from_march_of_year_0 = days + 719_468;
    let era = from_march_of_year_0.div_euclid(146_097);
    let day_of_era = from_march_of_year_0.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    if (0..=9_999).contains(&year) {
        format!("{year:04}-{month:02}-{day:02}")
    } else {
        format!("{year:+05}-{month:02}-{day:02}")
    }
}

/// Returns the time of day, given in units of 10^-`digits` seconds.
fn clock_text(since_midnight: i64, digits: u32) -> String {
    let per_second = 10_i64.pow(digits);
    let seconds = since_midnight / per_second;
    let fraction = since_midnight % per_second;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    let width = digits as usize;
    format!("{hours:02}:{minutes:02}:{:02}.{fraction:0width$}", seconds % 60)
}

#[cfg(test)]
mod tests {
    use parquet::data_type::ByteArray;

    use super::*;

    fn text(field: Field) -> String {
        field_value(&field, BinaryForm::Refused).unwrap().as_str().unwrap().to_owned()
    }

    /// Dates of Python's `datetime`, and beyond its years of `numpy.datetime64`.
    #[test]
    fn dates_of_every_year_are_written() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (19_000, "2022-01-08"),
            (-719_162, "0001-01-01"),
            (2_932_896, "9999-12-31"),
            (2_932_897, "+10000-01-01"),
            (-719_529, "-0001-12-31"),
            (i32::MAX, "+5881580-07-11"),
            (i32::MIN, "-5877641-06-23"),
        ] {
            assert_eq!(text(Field::Date(days)), expected);
        }
        assert_eq!(text(Field::TimestampMillis(-1)), "1969-12-31 23:59:59.999 +00:00");
        assert_eq!(text(Field::TimestampMicros(1_000_001)), "1970-01-01 00:00:01.000001 +00:00");
        assert!(
            text(Field::TimestampMillis(i64::MAX)).starts_with("+292278994-08-17 07:12:55.807")
        );
        assert!(
            text(Field::TimestampMicros(i64::MIN)).starts_with("-290308-12-21 19:59:05.224192")
        );
        assert_eq!(text(Field::TimeMillis(86_399_999)), "23:59:59.999");
    }

    #[test]
    fn decimals_of_every_scale_are_written() {
        for (unscaled, scale, expected) in [
            (12, 2, "0.12"),
            (-12, 2, "-0.12"),
            (5, 4, "0.0005"),
            (142, 0, "142"),
            (-1_234, 1, "-123.4"),
            (0, 2, "0.00"),
        ] {
            assert_eq!(text(Field::Decimal(Decimal::from_i32(unscaled, 4, scale))), expected);
        }
        let long = Decimal::from_bytes(ByteArray::from(vec![1; 17]), 40, 2);
        assert!(field_value(&Field::Decimal(long), BinaryForm::Refused).is_err());
    }

    #[test]
    fn bytes_are_text_if_utf8() {
        let bytes = |bytes: &[u8]| Field::Bytes(ByteArray::from(bytes.to_vec()));
        assert_eq!(text(bytes("Žižek".as_bytes())), "Žižek");
        assert!(field_value(&bytes(b"\xff"), BinaryForm::Refused).is_err());
        assert_eq!(field_value(&bytes(b"\xff"), BinaryForm::Base64).unwrap(), "/w==");
    }
}
