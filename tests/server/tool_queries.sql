-- Queries of tools that are not run in tests, in their form if not in their words; `-- tool:` begins those of one.

-- tool: DBeaver
SELECT current_schema(), session_user;
SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d
ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass ORDER BY nspname;
SELECT n.nspname = ANY(current_schemas(true)), n.nspname, t.typname FROM pg_catalog.pg_type t JOIN
pg_catalog.pg_namespace n ON t.typnamespace = n.oid WHERE t.oid = 1034;
SELECT * FROM pg_catalog.pg_enum WHERE 1 <> 1 LIMIT 1;
SELECT reltype FROM pg_catalog.pg_class WHERE 1 <> 1 LIMIT 1;
SELECT c.oid, c.relname, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS partition_expr,
pg_catalog.pg_get_partkeydef(c.oid) AS partition_key FROM pg_catalog.pg_class c LEFT OUTER JOIN
pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
WHERE c.relnamespace = 2200 AND c.relkind NOT IN ('i', 'I', 'c', 't');
SELECT c.relname, a.attname, a.atttypid, a.attnum, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS
def_value, dsc.description, dep.objid FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON
(a.attrelid = c.oid) LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND a.attnum =
ad.adnum) LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
LEFT OUTER JOIN pg_depend dep ON dep.refobjid = a.attrelid AND dep.deptype = 'i' AND dep.refobjsubid =
a.attnum AND dep.classid = dep.refclassid WHERE NOT a.attisdropped AND a.attnum > 0 AND c.relname = 'visits'
ORDER BY a.attnum;
SELECT string_agg(word, ',' ORDER BY word) FROM pg_catalog.pg_get_keywords() WHERE word <> ALL
('{a,abs,all}'::text[]);
SELECT t.oid, t.typname, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base_type_name
FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem LEFT OUTER JOIN
pg_catalog.pg_class c ON c.oid = t.typrelid WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind
= 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C') AND t.typnamespace = 11 ORDER BY t.oid;
SELECT i.*, c.relnamespace FROM pg_catalog.pg_inherits i, pg_catalog.pg_class c WHERE i.inhrelid = 16384 AND
c.oid = i.inhparent ORDER BY i.inhseqno;
SELECT c.oid, c.*, t.relname AS tabrelname, rt.relnamespace AS refnamespace FROM pg_catalog.pg_constraint c
INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid =
c.confrelid WHERE c.conrelid = 16384 ORDER BY c.oid;

-- tool: Metabase
WITH table_privileges AS (SELECT NULL AS role, t.schemaname AS schema, t.objectname AS table,
pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"."' ||
replace(t.objectname, '"', '""') || '"', 'select') AS select FROM (SELECT schemaname, tablename AS
objectname FROM pg_catalog.pg_tables UNION SELECT schemaname, viewname AS objectname FROM
pg_catalog.pg_views UNION SELECT schemaname, matviewname AS objectname FROM pg_catalog.pg_matviews) t WHERE
t.schemaname !~ '^pg_' AND t.schemaname <> 'information_schema') SELECT t.* FROM table_privileges t WHERE
t.select;
SELECT c.column_name AS name, c.udt_name AS database_type, c.ordinal_position - 1 AS database_position,
c.table_schema, c.table_name, c.is_nullable = 'NO' AS database_required FROM information_schema.columns c
WHERE c.table_schema !~ '^information_schema|catalog_history|pg_' ORDER BY c.table_schema, c.table_name,
c.ordinal_position;

-- tool: Grafana
SELECT quote_ident(table_name) AS table FROM information_schema.tables WHERE quote_ident(table_schema) NOT
IN ('information_schema', 'pg_catalog') ORDER BY table_name;
SELECT quote_ident(column_name) AS column, data_type AS type FROM information_schema.columns WHERE
quote_ident(table_name) = 'visits' ORDER BY ordinal_position;
SELECT current_setting('server_version_num')::int/100 AS version;

-- tool: Excel and Power BI
SELECT table_schema, table_name, table_type FROM information_schema.tables WHERE table_schema NOT IN
('information_schema', 'pg_catalog') ORDER BY table_schema, table_name;
SELECT column_name, ordinal_position, is_nullable, data_type FROM information_schema.columns WHERE
table_schema = 'public' AND table_name = 'visits' ORDER BY table_schema, table_name, ordinal_position;
SELECT ns.nspname, typ.oid, typ.typname, typ.typtype, typ.typnotnull, typ.typbasetype FROM pg_type AS typ
JOIN pg_namespace AS ns ON (ns.oid = typ.typnamespace) WHERE typ.typtype IN ('b', 'r', 'm', 'e', 'd') AND
ns.nspname = 'pg_catalog' ORDER BY typ.oid;

-- tool: pgAdmin and DataGrip
SELECT nsp.oid, nsp.nspname AS name, has_schema_privilege(nsp.oid, 'USAGE') AS has_usage FROM pg_namespace
nsp WHERE nspname NOT LIKE E'pg\\_%' ORDER BY nspname;
SELECT rel.oid, rel.relname AS name, (SELECT count(*) FROM pg_trigger WHERE tgrelid = rel.oid AND
tgisinternal = FALSE) AS triggercount FROM pg_class rel WHERE rel.relkind IN ('r', 's', 't', 'p') AND
rel.relnamespace = 2200::oid ORDER BY rel.relname;
SELECT a.attnum, a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a WHERE a.attrelid =
'public.visits'::regclass AND a.attnum > 0 ORDER BY 1;
SELECT pg_catalog.pg_is_in_recovery();

-- tool: psycopg and Django
SELECT c.relname, CASE WHEN c.relispartition THEN 'p' WHEN c.relkind IN ('m', 'v') THEN 'v' ELSE 't' END,
obj_description(c.oid, 'pg_class') FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid =
c.relnamespace WHERE c.relkind IN ('f', 'm', 'p', 'r', 'v') AND n.nspname NOT IN ('pg_catalog', 'pg_toast')
AND pg_catalog.pg_table_is_visible(c.oid);
SELECT typname AS name, oid, typarray AS array_oid, oid::regtype::text AS regtype, typdelim AS delimiter
FROM pg_type t WHERE t.oid = to_regtype('float8') ORDER BY t.oid;
