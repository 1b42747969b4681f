-- 1, pricing summary
SELECT l_flag, l_status, SUM(l_quantity) AS qty, SUM(l_price) AS base, SUM(l_price * (1 - l_discount)) AS disc, AVG(l_quantity) AS avg_qty, AVG(l_discount) AS avg_disc, COUNT(*) AS n FROM lineitem WHERE l_ship <= DATE '1998-06-01' GROUP BY l_flag, l_status ORDER BY l_flag, l_status;
-- 2, public tables only; refuse
SELECT s_name, ps_cost FROM supplier, partsupp WHERE s_suppkey = ps_suppkey AND ps_cost = (SELECT MIN(ps_cost) FROM partsupp) ORDER BY s_name;
-- 3, comma join of three, released top
SELECT o_date, SUM(l_price * (1 - l_discount)) AS revenue FROM customer c, orders o, lineitem l WHERE c_segment = 'auto' AND c.custkey = o.custkey AND l.custkey = o.custkey AND l_orderkey = o_orderkey AND o_date < DATE '1997-01-01' GROUP BY o_date ORDER BY revenue DESC, o_date LIMIT 3;
-- 4, exists within the unit
SELECT o_priority, COUNT(*) AS n FROM orders o WHERE o_date >= DATE '1996-01-01' AND EXISTS (SELECT * FROM lineitem l WHERE l.custkey = o.custkey AND l_orderkey = o_orderkey AND l_commit < l_receipt) GROUP BY o_priority ORDER BY o_priority;
-- 5, comma join with public tables
SELECT n_name, SUM(l_price * (1 - l_discount)) AS revenue FROM customer c, orders o, lineitem l, supplier, nation, region WHERE c.custkey = o.custkey AND l.custkey = o.custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nation = s_nation AND s_nation = n_nationkey AND n_region = r_regionkey AND r_name = 'EUROPE' GROUP BY n_name ORDER BY revenue DESC;
-- 6, sum with filters
SELECT SUM(l_price * l_discount) AS revenue FROM lineitem WHERE l_ship >= DATE '1996-01-01' AND l_ship < DATE '1996-01-01' + INTERVAL '1' YEAR AND l_discount BETWEEN 0.02 AND 0.08 AND l_quantity < 24;
-- 7, subquery in from, two roles of a public table
SELECT supp_nation, cust_nation, l_year, SUM(volume) AS revenue FROM (SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, EXTRACT(year FROM l_ship) AS l_year, l_price * (1 - l_discount) AS volume FROM supplier, lineitem l, orders o, customer c, nation n1, nation n2 WHERE s_suppkey = l_suppkey AND l.custkey = o.custkey AND o_orderkey = l_orderkey AND c.custkey = o.custkey AND s_nation = n1.n_nationkey AND c_nation = n2.n_nationkey AND n1.n_name IN ('FR', 'DE') AND n2.n_name IN ('FR', 'DE')) AS shipping GROUP BY supp_nation, cust_nation, l_year ORDER BY supp_nation, cust_nation, l_year;
-- 8, market share
SELECT o_year, SUM(CASE WHEN nation = 'FR' THEN volume ELSE 0 END) / SUM(volume) AS share FROM (SELECT EXTRACT(year FROM o_date) AS o_year, l_price * (1 - l_discount) AS volume, n_name AS nation FROM part, supplier, lineitem l, orders o, nation WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l.custkey = o.custkey AND l_orderkey = o_orderkey AND s_nation = n_nationkey AND p_type = 'STEEL') AS all_nations GROUP BY o_year ORDER BY o_year;
-- 9, profit by nation and year
SELECT nation, o_year, SUM(amount) AS profit FROM (SELECT n_name AS nation, EXTRACT(year FROM o_date) AS o_year, l_price * (1 - l_discount) - ps_cost * l_quantity AS amount FROM part, supplier, lineitem l, partsupp, orders o, nation WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey AND l.custkey = o.custkey AND o_orderkey = l_orderkey AND s_nation = n_nationkey AND p_name LIKE '%green%') AS profit GROUP BY nation, o_year ORDER BY nation, o_year DESC; -- bounds: amount=-50000:50000
-- 10, returned items by nation
SELECT n_name, SUM(l_price * (1 - l_discount)) AS revenue, COUNT(DISTINCT c.custkey) AS customers FROM customer c, orders o, lineitem l, nation WHERE c.custkey = o.custkey AND l.custkey = o.custkey AND l_orderkey = o_orderkey AND l_flag = 'R' AND c_nation = n_nationkey GROUP BY n_name ORDER BY revenue DESC LIMIT 20;
-- 11, public tables only; refuse
SELECT ps_partkey, SUM(ps_cost * ps_avail) AS value FROM partsupp GROUP BY ps_partkey HAVING SUM(ps_cost * ps_avail) > (SELECT SUM(ps_cost * ps_avail) * 0.01 FROM partsupp) ORDER BY value DESC;
-- 12, ship modes
SELECT l_mode, SUM(CASE WHEN o_priority = '1-URGENT' OR o_priority = '2-HIGH' THEN 1 ELSE 0 END) AS high, SUM(CASE WHEN o_priority <> '1-URGENT' AND o_priority <> '2-HIGH' THEN 1 ELSE 0 END) AS low FROM orders o, lineitem l WHERE o.custkey = l.custkey AND o_orderkey = l_orderkey AND l_mode IN ('MAIL', 'SHIP') AND l_commit < l_receipt AND l_ship < l_commit GROUP BY l_mode ORDER BY l_mode;
-- 13, distribution of orders per customer
SELECT c_count, COUNT(*) AS custdist FROM (SELECT c.custkey, COUNT(o_orderkey) AS c_count FROM customer c LEFT OUTER JOIN orders o ON c.custkey = o.custkey AND o_comment NOT LIKE '%special%requests%' GROUP BY c.custkey) AS c_orders GROUP BY c_count ORDER BY custdist DESC, c_count DESC;
-- 14, promotion effect
SELECT 100.00 * SUM(CASE WHEN p_type LIKE 'PROMO%' THEN l_price * (1 - l_discount) ELSE 0 END) / SUM(l_price * (1 - l_discount)) AS promo FROM lineitem, part WHERE l_partkey = p_partkey AND l_ship >= DATE '1996-01-01';
-- 15, top supplier over released
WITH revenue AS (SELECT l_suppkey AS supplier_no, SUM(l_price * (1 - l_discount)) AS total FROM lineitem GROUP BY l_suppkey) SELECT supplier_no, total FROM revenue WHERE total = (SELECT MAX(total) FROM revenue) ORDER BY supplier_no;
-- 16, public tables only; refuse
SELECT p_type, COUNT(DISTINCT ps_suppkey) AS n FROM partsupp, part WHERE p_partkey = ps_partkey AND p_type NOT LIKE 'PROMO%' GROUP BY p_type;
-- 17, average over other customers
SELECT SUM(l_price) / 7.0 AS avg_yearly FROM lineitem l, part WHERE p_partkey = l_partkey AND p_type = 'STEEL' AND l_quantity < (SELECT 0.2 * AVG(l_quantity) FROM lineitem m WHERE m.l_partkey = p_partkey);
-- 18, large orders
SELECT c_segment, COUNT(DISTINCT c.custkey) AS customers, SUM(l_quantity) AS qty FROM customer c, orders o, lineitem l, (SELECT custkey AS who, l_orderkey AS large FROM lineitem GROUP BY custkey, l_orderkey HAVING SUM(l_quantity) > 60) AS big WHERE big.who = o.custkey AND big.large = o_orderkey AND c.custkey = o.custkey AND o.custkey = l.custkey AND o_orderkey = l_orderkey GROUP BY c_segment;
-- 19, discounted revenue
SELECT SUM(l_price * (1 - l_discount)) AS revenue FROM lineitem, part WHERE (p_partkey = l_partkey AND p_type = 'STEEL' AND l_quantity >= 1 AND l_quantity <= 11 AND l_mode IN ('AIR', 'MAIL')) OR (p_partkey = l_partkey AND p_type = 'PROMO TIN' AND l_quantity >= 10 AND l_quantity <= 30 AND l_mode IN ('AIR', 'SHIP'));
-- 20, suppliers by what customers bought
SELECT s_name FROM supplier WHERE s_suppkey IN (SELECT ps_suppkey FROM partsupp WHERE ps_avail > (SELECT 0.5 * SUM(l_quantity) FROM lineitem WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey)) ORDER BY s_name;
-- 21, suppliers who kept orders waiting
SELECT s_name, COUNT(*) AS numwait FROM supplier, lineitem l1, orders o, nation WHERE s_suppkey = l1.l_suppkey AND o.custkey = l1.custkey AND o_orderkey = l1.l_orderkey AND o_status = 'F' AND l1.l_receipt > l1.l_commit AND EXISTS (SELECT * FROM lineitem l2 WHERE l2.custkey = l1.custkey AND l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey) AND s_nation = n_nationkey AND n_name = 'FR' GROUP BY s_name ORDER BY numwait DESC, s_name LIMIT 100;
-- 22, customers without orders
SELECT cntrycode, COUNT(*) AS numcust, SUM(c_acctbal) AS total FROM (SELECT SUBSTRING(c_phone FROM 1 FOR 2) AS cntrycode, c_acctbal FROM customer c WHERE c_acctbal > 0.00 AND NOT EXISTS (SELECT * FROM orders o WHERE o.custkey = c.custkey)) AS custsale GROUP BY cntrycode ORDER BY cntrycode;
