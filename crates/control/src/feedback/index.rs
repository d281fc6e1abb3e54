//! Which nodes an address or a name means.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use evener_engine::snapshot::PoolId;

use crate::director::PoolState;
use crate::feedback::NodeRef;

/// Made anew with each configuration.
#[derive(Debug, Default)]
pub(crate) struct Index {
    by_address: HashMap<IpAddr, Vec<(u16, NodeRef)>>,
    by_name: HashMap<String, Vec<NodeRef>>,
    pools: HashMap<PoolId, String>,
}

impl Index {
    pub(crate) fn new(pools: &BTreeMap<String, PoolState>) -> Index {
        let mut index = Index::default();
        for (name, pool) in pools {
            index.pools.insert(pool.id, name.clone());
            for node in &pool.nodes {
                let reference = NodeRef { pool: pool.id, node: node.id };
                let address = node.node.address;
                let at = index.by_address.entry(address.ip().to_canonical()).or_default();
                at.push((address.port(), reference));
                index.by_name.entry(node.node.name.clone()).or_default().push(reference);
            }
        }
        index
    }

    /// The nodes whose jobs go to `address`, to `port` of it if there is one.
    pub(crate) fn at(&self, address: IpAddr, port: Option<u16>) -> impl Iterator<Item = NodeRef> {
        let here = self.by_address.get(&address.to_canonical()).into_iter().flatten();
        here.filter(move |(at, _)| port.is_none_or(|port| *at == port)).map(|(_, node)| *node)
    }

    /// The nodes of this name.
    pub(crate) fn named(&self, node: &str) -> impl Iterator<Item = NodeRef> {
        self.by_name.get(node).into_iter().flatten().copied()
    }

    /// The name of a pool.
    pub(crate) fn pool(&self, id: PoolId) -> Option<&str> {
        self.pools.get(&id).map(String::as_str)
    }
}
