//! Three nodes in cluster mode: filters are found where their slot is, and move with it.

mod common;

use std::time::{Duration, Instant};

use common::{Reply, RespConnection, Server, own_server, wait_until};

const SLOTS: u32 = 16_384;
const NODES: u32 = 3;

#[test]
fn a_filter_is_found_on_the_node_of_its_slot_alone() {
    let Some(cluster) = Cluster::start() else { return };
    for i in 0..30 {
        let key = format!("filter-{i}");
        let (slot, home) = cluster.place(&key);
        for (index, node) in cluster.nodes.iter().enumerate() {
            let mut connection = node.resp2();
            let reply = connection.call(&["BF.ADD", &key, "a"]);
            if index == home {
                assert_eq!(reply, Reply::Int(1));
                assert_eq!(connection.call(&["BF.EXISTS", &key, "a"]), Reply::Int(1));
            } else {
                let moved = format!("MOVED {slot} 127.0.0.1:{}", cluster.nodes[home].port());
                for command in [
                    vec!["BF.ADD", &key, "a"],
                    vec!["BF.MADD", &key, "a", "b"],
                    vec!["BF.INSERT", &key, "ITEMS", "a"],
                    vec!["BF.RESERVE", &key, "0.01", "10"],
                    vec!["BF.EXISTS", &key, "a"],
                    vec!["BF.INFO", &key],
                    vec!["BF.LOADCHUNK", &key, "1", "data"],
                ] {
                    let reply = connection.call(&command);
                    assert_eq!(reply, Reply::Error(moved.clone()), "{command:?}");
                }
            }
        }
    }
}

#[test]
fn keys_of_one_hash_tag_work_together() {
    let Some(cluster) = Cluster::start() else { return };
    let (_, home) = cluster.place("{tag}a");
    let mut connection = cluster.nodes[home].resp2();
    assert_eq!(connection.line("BF.ADD {tag}a x"), Reply::Int(1));
    assert_eq!(connection.line("COPY {tag}a {tag}b"), Reply::Int(1));
    assert_eq!(connection.line("MULTI"), Reply::ok());
    connection.line("BF.EXISTS {tag}b x");
    connection.line("BF.ADD {tag}b y");
    let replies = connection.line("EXEC");
    assert_eq!(replies, Reply::Array(vec![Reply::Int(1), Reply::Int(1)]));
    let script = "return redis.call('BF.MEXISTS', KEYS[1], 'x', 'y')";
    let reply = connection.call(&["EVAL", script, "1", "{tag}b"]);
    assert_eq!(reply, Reply::Array(vec![Reply::Int(1), Reply::Int(1)]));
}

#[test]
fn filters_move_with_their_slot_while_in_use() {
    let Some(cluster) = Cluster::start() else { return };
    let (slot, from) = cluster.place("{move}");
    let to = (from + 1) % cluster.nodes.len();
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    let (mut at_source, mut at_target) = (source.resp2(), target.resp2());
    assert_eq!(at_source.line("BF.RESERVE {move}grown 0.001 100"), Reply::ok());
    for i in 0..2000 {
        assert!(at_source.line(&format!("BF.ADD {{move}}grown item-{i}")).int().is_some());
    }
    assert_eq!(at_source.line("BF.RESERVE {move}fixed 0.01 50 NONSCALING"), Reply::ok());
    assert_eq!(at_source.line("BF.ADD {move}fixed a"), Reply::Int(1));
    assert_eq!(at_source.line("BF.RESERVE {move}large 0.001 4000000"), Reply::ok());
    assert_eq!(at_source.line("BF.ADD {move}large a"), Reply::Int(1));
    assert_eq!(at_source.line("PEXPIRE {move}large 1000000"), Reply::Int(1));
    for command in OTHER_FAMILIES {
        let reply = at_source.line(command);
        assert!(reply.error().is_none(), "{command}: {reply}");
    }
    let before = source.dump_all();
    assert_eq!(before.len(), 7);

    let (source_id, target_id) = (my_id(&mut at_source), my_id(&mut at_target));
    let importing = format!("CLUSTER SETSLOT {slot} IMPORTING {source_id}");
    assert_eq!(at_target.line(&importing), Reply::ok());
    let migrating = format!("CLUSTER SETSLOT {slot} MIGRATING {target_id}");
    assert_eq!(at_source.line(&migrating), Reply::ok());
    let port = target.port().to_string();
    let migrate = ["MIGRATE", "127.0.0.1", &port, "{move}fixed", "0", "10000"];
    assert_eq!(at_source.call(&migrate), Reply::ok());
    // What has moved is asked for at the target, what has not answers at the source.
    let ask = Reply::Error(format!("ASK {slot} 127.0.0.1:{port}"));
    assert_eq!(at_source.line("BF.EXISTS {move}fixed a"), ask);
    assert_eq!(at_source.line("BF.ADD {move}fixed a"), ask);
    assert_eq!(at_source.line("BF.ADD {move}grown item-1"), Reply::Int(0));
    assert_eq!(at_target.line("ASKING"), Reply::ok());
    assert_eq!(at_target.line("BF.EXISTS {move}fixed a"), Reply::Int(1));
    let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS"];
    let keys = ["{move}grown", "{move}large", "{move}cf", "{move}cms", "{move}topk", "{move}td"];
    assert_eq!(at_source.call(&[&migrate[..], &keys].concat()), Reply::ok());
    for node in [&mut at_target, &mut at_source] {
        let owned = format!("CLUSTER SETSLOT {slot} NODE {target_id}");
        assert_eq!(node.line(&owned), Reply::ok());
    }
    assert!(target.dump_all() == before, "the filters are the same after the move");
    assert_eq!(source.dump_all().len(), 0);
    assert!(at_target.line("PTTL {move}large").int().is_some_and(|left| left > 0));
    for i in 0..2000 {
        let ask = format!("BF.EXISTS {{move}}grown item-{i}");
        assert_eq!(at_target.line(&ask), Reply::Int(1), "{ask}");
    }
    assert!(at_target.line("BF.ADD {move}grown new").int().is_some());
    assert_eq!(at_target.line("CF.EXISTS {move}cf b"), Reply::Int(1));
    assert_eq!(at_target.line("CMS.QUERY {move}cms a"), Reply::Array(vec![Reply::Int(5)]));
    assert_eq!(at_target.line("TOPK.QUERY {move}topk a"), Reply::Array(vec![Reply::Int(1)]));
    assert_eq!(at_target.line("TDIGEST.MAX {move}td").text(), Some("3"));
}

#[test]
fn a_replica_takes_over_the_keys_of_its_node() {
    let Some(cluster) = Cluster::start() else { return };
    let (_, home) = cluster.place("{move}");
    let primary = &cluster.nodes[home];
    let replica = node();
    let (mut at_primary, mut at_replica) = (primary.resp2(), replica.resp2());
    let port = primary.port().to_string();
    assert_eq!(at_replica.call(&["CLUSTER", "MEET", "127.0.0.1", &port]), Reply::ok());
    let id = my_id(&mut at_primary);
    wait_until("the nodes know each other", || {
        let state = at_replica.line("CLUSTER INFO");
        state.text().is_some_and(|text| text.contains("cluster_state:ok"))
            && at_replica.line(&format!("CLUSTER REPLICATE {id}")) == Reply::ok()
    });
    for command in OTHER_FAMILIES.iter().chain(&["BF.MADD {move}bf a b c"]) {
        let reply = at_primary.line(command);
        assert!(reply.error().is_none(), "{command}: {reply}");
    }
    wait_until("the replica follows", || {
        primary.info("replication", "connected_slaves").as_deref() == Some("1")
    });
    replica.wait_for_sync(primary);
    let replica_id = my_id(&mut at_replica);
    for node in &cluster.nodes {
        let mut connection = node.resp2();
        wait_until("the node knows whose replica the new one is", || {
            let nodes = connection.line("CLUSTER NODES");
            let mut lines = nodes.text().expect("a list of nodes").lines();
            lines.any(|line| line.starts_with(&replica_id) && line.contains(&id))
        });
    }
    let before = primary.dump_all();
    // An attempt lasts five seconds. The other nodes can vote against the first all the
    // same, while word of the last change to the cluster still goes round.
    let mut asked: Option<Instant> = None;
    wait_until("the replica takes over", || {
        if asked.is_none_or(|asked| asked.elapsed() > Duration::from_secs(6)) {
            at_replica.line("CLUSTER FAILOVER");
            asked = Some(Instant::now());
        }
        replica.info("replication", "role").as_deref() == Some("master")
    });
    wait_until("the new primary takes writes", || {
        at_replica.line("BF.ADD {move}bf new").int().is_some()
    });
    assert_eq!(at_replica.line("CMS.QUERY {move}cms a"), Reply::Array(vec![Reply::Int(5)]));
    let after = replica.dump_all();
    assert_eq!(at_primary.line("READONLY"), Reply::ok());
    wait_until("the old primary follows", || {
        after.iter().all(|(key, payload)| {
            let dump = at_primary.call(&[b"DUMP".as_slice(), key]);
            dump.bytes().is_some_and(|dump| dump.starts_with(payload))
        })
    });
    assert_eq!(after.len(), 5);
    let same = after.iter().filter(|pair| before.contains(pair)).count();
    assert_eq!(same, 4, "all but the written filter are as they were");
}

/// Keys of the other families in the slot that moves.
const OTHER_FAMILIES: &[&str] = &[
    "CF.INSERT {move}cf ITEMS a b c",
    "CMS.INITBYDIM {move}cms 100 4",
    "CMS.INCRBY {move}cms a 5 b 6",
    "TOPK.RESERVE {move}topk 3",
    "TOPK.ADD {move}topk a b a",
    "TDIGEST.CREATE {move}td",
    "TDIGEST.ADD {move}td 1 2 3",
];

/// A node to be. Votes against a replica bar its next try for four timeouts, which are
/// a minute by default.
fn node() -> Server {
    Server::builder().config("cluster-enabled yes").config("cluster-node-timeout 4000").start()
}

struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// Three nodes that share the slots evenly; `None` where servers cannot be started.
    fn start() -> Option<Self> {
        if !own_server() {
            return None;
        }
        let nodes: Vec<_> = (0..NODES).map(|_| node()).collect();
        let mut first = nodes[0].resp2();
        for (index, node) in (0..NODES).zip(&nodes) {
            let slots = (SLOTS * index / NODES)..(SLOTS * (index + 1) / NODES);
            let mut command = vec!["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
            command.extend(slots.map(|slot| slot.to_string()));
            assert_eq!(node.resp2().call(&command), Reply::ok());
            let port = node.port().to_string();
            if index > 0 {
                assert_eq!(first.call(&["CLUSTER", "MEET", "127.0.0.1", &port]), Reply::ok());
            }
        }
        for node in &nodes {
            let mut connection = node.resp2();
            wait_until("the cluster is up", || {
                let info = connection.line("CLUSTER INFO");
                let info = info.text().unwrap_or_default();
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
            });
        }
        Some(Self { nodes })
    }

    /// The key's slot, and the number of the node that has it.
    fn place(&self, key: &str) -> (u32, usize) {
        let slot = self.nodes[0].resp2().call(&["CLUSTER", "KEYSLOT", key]);
        let slot: u32 = slot.int().and_then(|slot| slot.try_into().ok()).expect("a slot");
        let home = (0..NODES).find(|index| slot < SLOTS * (index + 1) / NODES);
        (slot, home.expect("every slot has a node") as usize)
    }
}

fn my_id(connection: &mut RespConnection) -> String {
    connection.line("CLUSTER MYID").text().expect("an ID").to_owned()
}
