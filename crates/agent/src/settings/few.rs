//! What may be written as a word, as a table, or as a list of both.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A value that has a short form, a word, and a long one, a table.
pub(super) trait Written: FromStr<Err: fmt::Display> {
    /// The table.
    type Table: for<'de> Deserialize<'de> + TryInto<Self, Error: fmt::Display>;
    /// What is expected, with an example.
    const EXPECTED: &str;
}

/// One of them.
struct One<T>(T);

/// None, one or many of them.
#[derive(Debug)]
pub(super) struct Few<T>(pub(super) Vec<T>);

impl<T> Default for Few<T> {
    fn default() -> Few<T> {
        Few(Vec::new())
    }
}

impl<'de, T: Written> Deserialize<'de> for One<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<One<T>, D::Error> {
        deserializer.deserialize_any(OneVisitor(PhantomData)).map(One)
    }
}

impl<'de, T: Written> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Few<T>, D::Error> {
        deserializer.deserialize_any(FewVisitor(PhantomData)).map(Few)
    }
}

struct OneVisitor<T>(PhantomData<T>);

impl<'de, T: Written> Visitor<'de> for OneVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    /// A port is a number.
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let table = T::Table::deserialize(MapAccessDeserializer::new(map))?;
        table.try_into().map_err(de::Error::custom)
    }
}

struct FewVisitor<T>(PhantomData<T>);

impl<'de, T: Written> Visitor<'de> for FewVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, or a list of such", T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
        OneVisitor(PhantomData).visit_str(text).map(|one| vec![one])
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Vec<T>, E> {
        OneVisitor(PhantomData).visit_i64(number).map(|one| vec![one])
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<T>, A::Error> {
        OneVisitor(PhantomData).visit_map(map).map(|one| vec![one])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(One(value)) = list.next_element()? {
            all.push(value);
        }
        Ok(all)
    }
}
