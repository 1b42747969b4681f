CREATE TABLE customer AS SELECT i AS custkey, ['auto', 'home', 'tools'][1 + i % 3] AS c_segment, i % 5 AS c_nation,
  CAST((i * 37) % 1000 - 200 AS DOUBLE) AS c_acctbal, CAST(10 + i % 4 AS VARCHAR) || '-555' AS c_phone FROM range(300) t(i);
CREATE TABLE orders AS SELECT i AS o_orderkey, (i * 11) % 280 AS custkey, DATE '1995-01-01' + CAST((i * 41) % 24 * 45 AS INTEGER) AS o_date,
  ['1-URGENT', '2-HIGH', '3-LOW'][1 + i % 3] AS o_priority, ['F', 'O'][1 + i % 2] AS o_status,
  CASE WHEN i % 5 = 0 THEN 'some special urgent requests' ELSE 'plain' END AS o_comment FROM range(900) t(i);
CREATE TABLE lineitem AS SELECT o_orderkey AS l_orderkey, custkey, (o_orderkey * 3 + j) % 20 AS l_partkey, ((o_orderkey * 3 + j) % 20 + j * 3) % 6 AS l_suppkey,
  CAST(1 + (o_orderkey * 11 + j * 17) % 40 AS DOUBLE) AS l_quantity, CAST(100 + (o_orderkey * 53 + j * 7) % 900 AS DOUBLE) AS l_price,
  CAST((o_orderkey + j) % 10 AS DOUBLE) / 100 AS l_discount, ['A', 'N', 'R'][1 + (o_orderkey + j) % 3] AS l_flag, ['F', 'O'][1 + (o_orderkey // 3) % 2] AS l_status,
  o_date + CAST(10 + j * 20 AS INTEGER) AS l_ship, o_date + 40 AS l_commit, o_date + CAST(20 + (o_orderkey + j * 13) % 45 AS INTEGER) AS l_receipt,
  ['AIR', 'MAIL', 'SHIP'][1 + (o_orderkey * 5 + j) % 3] AS l_mode FROM orders, range(3) r(j);
CREATE TABLE region AS SELECT * FROM (VALUES (0, 'EUROPE'), (1, 'ASIA')) t(r_regionkey, r_name);
CREATE TABLE nation AS SELECT * FROM (VALUES (0, 'FR', 0), (1, 'DE', 0), (2, 'JP', 1), (3, 'IN', 1), (4, 'IT', 0)) t(n_nationkey, n_name, n_region);
CREATE TABLE supplier AS SELECT i AS s_suppkey, 'supplier ' || i AS s_name, i % 5 AS s_nation FROM range(6) t(i);
CREATE TABLE part AS SELECT i AS p_partkey, ['STEEL', 'PROMO TIN', 'BRASS'][1 + i % 3] AS p_type, ['green tea', 'red', 'dark green'][1 + (i // 2) % 3] AS p_name FROM range(20) t(i);
CREATE TABLE partsupp AS SELECT p.i AS ps_partkey, s.i AS ps_suppkey, CAST(1 + (p.i * 3 + s.i) % 9 AS DOUBLE) AS ps_cost, CAST(10 * p.i AS DOUBLE) AS ps_avail FROM range(20) p(i), range(6) s(i);
