//! CRC-32 as in IEEE 802.3: finds every single flipped bit, and any burst of up to 32.

/// The remainders of all bytes, one table for each place in a group of four.
const TABLES: [[u32; 256]; 4] = tables();

const fn tables() -> [[u32; 256]; 4] {
    let mut tables = [[0; 256]; 4];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = if rest & 1 == 1 { rest >> 1 ^ 0xedb8_8320 } else { rest >> 1 };
            bit += 1;
        }
        tables[0][byte] = rest;
        byte += 1;
    }
    let mut place = 1;
    while place < 4 {
        let mut byte = 0;
        while byte < 256 {
            let rest = tables[place - 1][byte];
            tables[place][byte] = rest >> 8 ^ tables[0][(rest & 0xff) as usize];
            byte += 1;
        }
        place += 1;
    }
    tables
}

/// The checksum of `bytes`.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    let (groups, rest) = bytes.as_chunks::<4>();
    let mut sum = u32::MAX;
    for group in groups {
        let [a, b, c, d] = (sum ^ u32::from_le_bytes(*group)).to_le_bytes();
        sum = TABLES[3][usize::from(a)]
            ^ TABLES[2][usize::from(b)]
            ^ TABLES[1][usize::from(c)]
            ^ TABLES[0][usize::from(d)];
    }
    for byte in rest {
        sum = sum >> 8 ^ TABLES[0][usize::from(sum as u8 ^ byte)];
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::checksum;

    #[test]
    fn it_is_the_known_one() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
        assert_eq!(checksum(b""), 0);
    }
}
