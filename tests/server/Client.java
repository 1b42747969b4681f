import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/** A JDBC client: rows of a query, of a prepared one with a parameter, or the sizes of its metadata. */
public class Client {
    static void show(ResultSet rows) throws SQLException {
        while (rows.next()) {
            StringBuilder line = new StringBuilder(rows.getString(1));
            for (int i = 2; i <= rows.getMetaData().getColumnCount(); i++) {
                line.append('|').append(rows.getDouble(i));
            }
            System.out.println(line);
        }
    }

    static void count(String what, ResultSet rows) throws SQLException {
        int number = 0;
        while (rows.next()) {
            number++;
        }
        System.out.println(what + " " + number);
    }

    public static void main(String[] words) throws Exception {
        try (Connection connection = DriverManager.getConnection(words[0])) {
            if (words[1].equals("rows")) {
                connection.setAutoCommit(false);
                Statement statement = connection.createStatement();
                statement.setFetchSize(1);
                show(statement.executeQuery(words[2]));
                connection.commit();
            } else if (words[1].equals("prepared")) {
                PreparedStatement statement = connection.prepareStatement(words[2]);
                statement.setInt(1, Integer.parseInt(words[3]));
                show(statement.executeQuery());
            } else {
                DatabaseMetaData data = connection.getMetaData();
                count("schemas", data.getSchemas());
                count("catalogs", data.getCatalogs());
                count("tables", data.getTables(null, "public", "%", new String[] {"TABLE"}));
                count("columns", data.getColumns(null, null, "visits", "%"));
                count("keys", data.getPrimaryKeys(null, "public", "visits"));
                count("indexes", data.getIndexInfo(null, "public", "visits", false, false));
                count("imported", data.getImportedKeys(null, "public", "visits"));
                count("types", data.getTypeInfo());
                count("functions", data.getFunctions(null, "public", "%"));
            }
        }
    }
}
