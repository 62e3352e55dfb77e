//! What there is to attack: the commands of each family.

/// A command family.
pub(crate) struct Family {
    /// The prefix of its commands.
    pub(crate) name: &'static str,
    /// Commands that make one key each, named `seed:` and a letter. Words end at
    /// spaces; `{}` stands for many items.
    pub(crate) seeds: &'static [&'static str],
    /// Every command of the family, on the key `k`.
    pub(crate) uses: &'static [&'static str],
    /// Further forms of the commands, as a start for those with bad arguments.
    pub(crate) forms: &'static [&'static str],
    /// Dump chunks: the commands that read and load them.
    pub(crate) chunks: Option<(&'static str, &'static str)>,
}

/// All families.
pub(crate) const FAMILIES: [Family; 5] = [
    Family {
        name: "BF",
        seeds: &[
            "BF.RESERVE seed:a 0.01 100",
            "BF.INSERT seed:b CAPACITY 10 ERROR 0.001 EXPANSION 2 ITEMS {}",
            "BF.RESERVE seed:c 0.2 20 NONSCALING",
            "BF.MADD seed:d {}",
        ],
        uses: &[
            "BF.EXISTS k a",
            "BF.MEXISTS k {}",
            "BF.INFO k",
            "BF.INFO k CAPACITY",
            "BF.CARD k",
            "BF.DEBUG k",
            "BF.SCANDUMP k 0",
            "BF.SCANDUMP k 1",
            "BF.ADD k x",
            "BF.MADD k {}",
            "BF.INSERT k NOCREATE ITEMS q r",
        ],
        forms: &[
            "BF.RESERVE k 0.01 100",
            "BF.RESERVE k 0.01 100 EXPANSION 4",
            "BF.RESERVE k 0.01 100 NONSCALING",
            "BF.INSERT k CAPACITY 100 ERROR 0.01 EXPANSION 2 ITEMS a b",
            "BF.INSERT k NONSCALING ITEMS a b",
            "BF.LOADCHUNK k 1 header",
        ],
        chunks: Some(("BF.SCANDUMP", "BF.LOADCHUNK")),
    },
    Family {
        name: "CF",
        seeds: &[
            "CF.RESERVE seed:a 100",
            "CF.INSERT seed:b CAPACITY 16 ITEMS {}",
            "CF.RESERVE seed:c 64 BUCKETSIZE 4 MAXITERATIONS 50 EXPANSION 4",
            "CF.RESERVE seed:d 8 BUCKETSIZE 1 EXPANSION 0",
        ],
        uses: &[
            "CF.EXISTS k a",
            "CF.MEXISTS k {}",
            "CF.COUNT k a",
            "CF.INFO k",
            "CF.DEBUG k",
            "CF.SCANDUMP k 0",
            "CF.SCANDUMP k 1",
            "CF.ADD k x",
            "CF.ADDNX k y",
            "CF.INSERT k NOCREATE ITEMS {}",
            "CF.INSERTNX k NOCREATE ITEMS q r",
            "CF.DEL k x",
            "CF.DEL k a",
            "CF.COMPACT k",
        ],
        forms: &[
            "CF.RESERVE k 100",
            "CF.RESERVE k 100 BUCKETSIZE 4 MAXITERATIONS 50 EXPANSION 2",
            "CF.INSERT k CAPACITY 100 ITEMS a b",
            "CF.INSERTNX k CAPACITY 100 ITEMS a b",
            "CF.LOADCHUNK k 1 header",
        ],
        chunks: Some(("CF.SCANDUMP", "CF.LOADCHUNK")),
    },
    Family {
        name: "CMS",
        seeds: &[
            "CMS.INITBYDIM seed:a 20 3",
            "CMS.INITBYPROB seed:b 0.02 0.01",
            "CMS.INITBYDIM seed:c 1 1",
        ],
        uses: &[
            "CMS.QUERY k a b",
            "CMS.INFO k",
            "CMS.INCRBY k a 1 b 4294967295",
            "CMS.INCRBY k c 9223372036854775807",
            "CMS.MERGE k 1 k",
            "CMS.MERGE k 2 k k WEIGHTS 2 -1",
            "CMS.QUERY k {}",
        ],
        forms: &[
            "CMS.INITBYDIM k 100 5",
            "CMS.INITBYPROB k 0.01 0.01",
            "CMS.INCRBY seed:a a 1 b 2",
            "CMS.MERGE k 1 seed:a",
            "CMS.MERGE seed:a 2 seed:a seed:a WEIGHTS 1 2",
        ],
        chunks: None,
    },
    Family {
        name: "TOPK",
        seeds: &[
            "TOPK.RESERVE seed:a 3 8 4 0.9",
            "TOPK.RESERVE seed:b 10",
            "TOPK.RESERVE seed:c 1 1 1 1",
        ],
        uses: &[
            "TOPK.QUERY k a b",
            "TOPK.COUNT k a b",
            "TOPK.LIST k",
            "TOPK.LIST k WITHCOUNT",
            "TOPK.INFO k",
            "TOPK.ADD k {}",
            "TOPK.INCRBY k a 100000 zz 3",
            "TOPK.LIST k WITHCOUNT",
        ],
        forms: &[
            "TOPK.RESERVE k 5",
            "TOPK.RESERVE k 5 8 7 0.9",
            "TOPK.INCRBY seed:a a 1 b 2",
            "TOPK.LIST seed:a WITHCOUNT",
        ],
        chunks: None,
    },
    Family {
        name: "TDIGEST",
        seeds: &[
            "TDIGEST.CREATE seed:a",
            "TDIGEST.CREATE seed:b COMPRESSION 10",
            "TDIGEST.CREATE seed:c COMPRESSION 1000",
        ],
        uses: &[
            "TDIGEST.INFO k",
            "TDIGEST.MIN k",
            "TDIGEST.MAX k",
            "TDIGEST.QUANTILE k 0 0.1 0.5 0.9 1",
            "TDIGEST.CDF k -1 0 5 1e300",
            "TDIGEST.RANK k -1 5 1e300",
            "TDIGEST.REVRANK k -1 5 1e300",
            "TDIGEST.BYRANK k 0 1 5 1000000",
            "TDIGEST.BYREVRANK k 0 1 5 1000000",
            "TDIGEST.TRIMMED_MEAN k 0.1 0.9",
            "TDIGEST.ADD k 1 2 3 -1e308 1e308",
            "TDIGEST.MERGE k 1 k",
            "TDIGEST.MERGE other 2 k k COMPRESSION 20",
            "TDIGEST.QUANTILE k 0.5",
            "TDIGEST.RESET k",
            "TDIGEST.ADD k 5",
        ],
        forms: &[
            "TDIGEST.CREATE k COMPRESSION 100",
            "TDIGEST.ADD seed:a 1 2 3",
            "TDIGEST.MERGE k 2 seed:a seed:b COMPRESSION 50 OVERRIDE",
            "TDIGEST.QUANTILE seed:a 0.5",
            "TDIGEST.CDF seed:a 5",
            "TDIGEST.BYRANK seed:a 3",
            "TDIGEST.TRIMMED_MEAN seed:a 0.1 0.9",
        ],
        chunks: None,
    },
];

/// Commands that put something into each seed.
pub(crate) const FILL: [&str; 10] = [
    "BF.MADD seed:a a b c",
    "BF.INSERT seed:c ITEMS a b c",
    "CF.INSERT seed:a ITEMS a b c a a",
    "CF.INSERT seed:c ITEMS a b c d e f g",
    "CMS.INCRBY seed:a a 1 b 20 c 300",
    "CMS.INCRBY seed:b a 4294967290 b 2",
    "TOPK.ADD seed:a a b c d a b a",
    "TOPK.ADD seed:b {}",
    "TDIGEST.ADD seed:a 1 2 3 4 5 6 7 8 9 10 -5 0.5",
    "TDIGEST.ADD seed:b 1 1 1 2 2 3 9 8 7 6 5 4 3 2 1 11 12 13 14 15 16 17 18 19 20 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 0",
];

/// The words of a command written as above.
pub(crate) fn words(command: &str) -> Vec<Vec<u8>> {
    let items = || (0..40).map(|number| format!("item:{number}").into_bytes());
    let word = |word: &str| match word {
        "{}" => items().collect(),
        word => vec![word.as_bytes().to_vec()],
    };
    command.split_whitespace().flat_map(word).collect()
}
